"""`carina queue`: what each queue has, may have and waits for; it stops and resumes queues."""

from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterator, Mapping
from typing import Any, Final

from carina_dra.cli.command import Command
from carina_dra.cli.output import OutputFormat, add_output_argument, render
from carina_dra.resource.errors import did_you_mean
from carina_dra.text_table import columns
from controller.api.queue import GroupCounts, QueueStatus
from controller.commands.hold import HoldError, set_hold
from controller.commands.input import add_snapshot_argument, chosen_cluster, print_error
from controller.engine.decide.cycle import Engine
from controller.engine.files.queue import UNLIMITED
from controller.engine.model.plan import Plan
from controller.engine.model.queue import Hold
from controller.engine.model.resource import Resource, describe, write_amount
from controller.engine.state.queue_tree import ROOT
from controller.engine.state.state import State
from controller.report.queue_checks import UNKNOWN_ACCESS, QueueAccess
from controller.report.queue_giving import NO_HOLDUP, holdups
from controller.report.queue_status import (
    ResourceAmounts,
    count_groups,
    queue_amounts,
    queue_status,
)
from controller.report.queue_use import use_of_stopped_queues

__all__ = ["COMMAND"]

PRINTED: Final = 0
FAILED: Final = 1
INVALID_INPUT: Final = 2

_NAME: Final = "queue"
_STOP: Final = "stop"
_RESUME: Final = "resume"
_INDENT: Final = "  "
_EXIT_CODES: Final = f"""\
exit codes:
  {PRINTED}  the queues were printed, or the queue was stopped or resumed
  {FAILED}  the queue was not stopped or resumed
  {INVALID_INPUT}  an argument or the file is not valid, or the cluster cannot be read
"""
_HEADINGS: Final = (
    "QUEUE",
    "RESOURCE",
    "ALLOCATED",
    "QUOTA",
    "FAIR SHARE",
    "LIMIT",
    "PENDING",
    "RUNNING",
    "WAITING",
)
"""The last two count groups."""


def run(arguments: Namespace) -> int:
    """Prints the queues, or stops or resumes one; errors go to standard error."""
    words: list[str] = arguments.words
    match words:
        case [("stop" | "resume") as verb, queue]:
            return _hold(verb, queue, arguments)
        case [_, _, *_]:
            problem = f"{' '.join(words)!r} is not [QUEUE], {_STOP} QUEUE or {_RESUME} QUEUE"
        case _ if arguments.drain:
            problem = f"--drain needs {_STOP} QUEUE"
        case _:
            return _show(words[0] if words else None, arguments)
    print_error(_NAME, problem)
    return INVALID_INPUT


def _hold(verb: str, queue: str, arguments: Namespace) -> int:
    if arguments.drain and verb == _RESUME:
        print_error(_NAME, f"--drain does not go with {_RESUME}")
        return INVALID_INPUT
    if arguments.file is not None:
        print_error(_NAME, f"{verb} changes the cluster of the kubeconfig; leave out -f")
        return INVALID_INPUT
    stopped = Hold.DRAIN if arguments.drain else Hold.HOLD
    try:
        print(set_hold(queue, Hold.NONE if verb == _RESUME else stopped))
    except HoldError as error:
        print_error(_NAME, str(error))
        return FAILED
    return PRINTED


def _show(queue: str | None, arguments: Namespace) -> int:
    try:
        cluster = chosen_cluster(_NAME, arguments)
        state = State(cluster.snapshot)
        table = _Table(state, Engine(state).decide(), cluster.access)
        names = table.chosen(queue)
    except ValueError as error:
        print_error(_NAME, str(error))
        return INVALID_INPUT
    document = {"queues": [table.document(name) for name in names]}
    print(render(OutputFormat(arguments.output), document=document, table=table.lines(names)))
    return PRINTED


class _Table:
    """The queues of a state, each before those below it."""

    def __init__(self, state: State, plan: Plan, access: Mapping[str, QueueAccess]) -> None:
        self._tree = state.occupancy.tree
        groups = count_groups(state)
        use, held_up = use_of_stopped_queues(state.occupancy), holdups(state.occupancy, plan)
        names = [*self._below(ROOT), *sorted(state.occupancy.tree.cut_off)]
        self._statuses: dict[str, QueueStatus] = {
            name: queue_status(
                state.occupancy,
                plan,
                name,
                groups.get(name, GroupCounts()),
                use.get(name),
                access=access.get(name, UNKNOWN_ACCESS),
                holdup=held_up.get(name, NO_HOLDUP),
            )
            for name in names
        }
        self._amounts: dict[str, tuple[ResourceAmounts, ...]] = {
            name: queue_amounts(state.occupancy, plan, name) for name in names
        }

    def chosen(self, queue: str | None) -> list[str]:
        """All queues, or one and those below it.

        Raises:
            ValueError: there is no such queue.
        """
        if queue is None:
            return list(self._statuses)
        if queue not in self._statuses:
            remedy = did_you_mean(queue, self._statuses) if self._statuses else "there is none"
            raise ValueError(f"there is no queue {queue!r}; {remedy}")
        return [queue, *self._below(queue)]

    def lines(self, names: list[str]) -> Iterator[str]:
        """The queues for people, with what is wrong with them after the table."""
        if not names:
            yield "there are no queues"
            return
        yield from columns(_HEADINGS, (row for name in names for row in self._rows(name)))
        for name in names:
            for condition in self._statuses[name].conditions:
                if not condition.holds:
                    yield f"{name}: {condition.message}"

    def document(self, name: str) -> dict[str, Any]:
        """A queue for programs: its status, and what it may have."""
        status = self._statuses[name]
        resources = []
        for amounts in self._amounts[name]:
            quota, limit = self._entitlement(name, amounts.resource)
            resources.append({**amounts.status().body(), "quota": quota, "limit": limit})
        queue = self._tree.queues.get(name)
        parent = {"parent": queue.parent} if queue is not None and queue.parent else {}
        return {"name": name, **parent, **status.body(), "resources": resources}

    def _rows(self, name: str) -> Iterator[tuple[str, ...]]:
        """A row a resource; the queue and its groups are in the first of them."""
        status = self._statuses[name]
        depth = len(self._tree.paths.get(name, (name,))) - 1
        title = f"{_INDENT * depth}{name}"
        groups = (str(status.groups.running), str(status.groups.pending))
        if not self._amounts[name]:
            yield (title, "-", "-", "-", "-", "-", "-", *groups)
        for amounts in self._amounts[name]:
            quota, limit = self._entitlement(name, amounts.resource)
            written = amounts.status()
            yield (
                title,
                describe(amounts.resource),
                str(written.allocated),
                str(quota),
                str(written.fair_share),
                "-" if limit is None else str(limit),
                str(written.pending),
                *groups,
            )
            title, groups = "", ("", "")

    def _entitlement(self, name: str, resource: Resource) -> tuple[object, object]:
        """Quota and limit of a queue, as the Queue object has them; no limit is None."""
        entitled = self._tree.entitlements(name)[self._tree.index[resource]]
        return (
            UNLIMITED if entitled.quota is None else write_amount(resource, entitled.quota),
            None if entitled.limit is None else write_amount(resource, entitled.limit),
        )

    def _below(self, queue: str) -> Iterator[str]:
        for child in self._tree.children.get(queue, ()):
            yield child
            yield from self._below(child)


def _add_arguments(parser: ArgumentParser) -> None:
    parser.formatter_class = RawDescriptionHelpFormatter
    parser.epilog = _EXIT_CODES
    parser.usage = f"{parser.prog} [QUEUE | {_STOP} QUEUE [--drain] | {_RESUME} QUEUE] [options]"
    parser.add_argument(
        "words",
        nargs="*",
        metavar="QUEUE",
        help="this queue and those below it [all queues]; "
        f"{_STOP} QUEUE: nothing starts in it, or in queues below it, until {_RESUME} QUEUE",
    )
    parser.add_argument(
        "--drain",
        action="store_true",
        help=f"with {_STOP}: evict its groups, too, as far as PodDisruptionBudgets allow",
    )
    add_snapshot_argument(parser)
    add_output_argument(parser)


COMMAND: Final = Command(
    add_arguments=_add_arguments,
    run=run,
)
