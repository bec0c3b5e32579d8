"""`carina why`: why a group waits, by the engine's decision on the cluster or on a snapshot.

A user who may not read the whole cluster gets what the controller has written about the group.
"""

import time
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from typing import Any, Final, assert_never

from carina_dra.cli.command import Command
from carina_dra.cli.output import OutputFormat, add_output_argument, render
from carina_dra.kube import configuration
from carina_dra.kube.client import Client
from carina_dra.kube.errors import ApiError
from controller.commands.cluster_snapshot import ClusterSnapshot
from controller.commands.input import (
    InputError,
    NotPermittedError,
    add_snapshot_argument,
    chosen_cluster,
    print_error,
)
from controller.commands.written import (
    WrittenReasons,
    read_written,
    standing_refusal,
    written_lines,
)
from controller.engine.decide.cycle import Engine
from controller.engine.explain import (
    GroupExplanation,
    Refusal,
    UnknownGroupError,
    WhyAnswer,
    explain,
    group_named,
    lines,
    refusal,
    turn_of,
    with_refusal,
)
from controller.engine.files.value import codec_of
from controller.engine.state.state import State

__all__ = ["COMMAND"]

HAS_ALL: Final = 0
INVALID_INPUT: Final = 2
WAITS: Final = 3

_NAME: Final = "why"
_EXIT_CODES: Final = f"""\
exit codes:
  {HAS_ALL}  the group has, or gets now, all that it asks for
  {INVALID_INPUT}  an argument or the file is not valid, the cluster cannot be read, or there is no
     such group
  {WAITS}  the group waits, or is refused
"""


def run(arguments: Namespace) -> int:
    """Prints the reasons of one group; errors of the input go to standard error."""
    try:
        found = _found(arguments)
    except ValueError as error:
        print_error(_NAME, str(error))
        return INVALID_INPUT
    document: dict[str, Any] = codec_of(type(found)).write(found)
    table = written_lines(found) if isinstance(found, WrittenReasons) else lines(found)
    print(render(OutputFormat(arguments.output), document=document, table=table))
    match found:
        case GroupExplanation(waits=waits) | WrittenReasons(waits=waits):
            return WAITS if waits else HAS_ALL
        case Refusal():
            return WAITS
    assert_never(found)


def _found(arguments: Namespace) -> WhyAnswer | WrittenReasons:
    """The engine's decision; what the controller has written if the user may not read enough."""
    try:
        answer = _answer(chosen_cluster(_NAME, arguments), arguments.group)
    except NotPermittedError as not_permitted:
        try:
            with Client(configuration.find(None)) as client:
                return read_written(client, arguments.group)
        except ApiError as error:
            raise InputError(f"{not_permitted}; nor can the namespace: {error}") from None
    if arguments.file is None and isinstance(answer, GroupExplanation):
        return _with_refusal(answer, arguments.group)
    return answer


def _with_refusal(answer: GroupExplanation, name: str) -> GroupExplanation:
    """The engine's decision, with kube-scheduler's refusal that the controller remembers."""
    try:
        with Client(configuration.find(None)) as client:
            refused = standing_refusal(read_written(client, name), time.time())
    except UnknownGroupError:  # no pods yet, or no name that users know
        return answer
    except ApiError as error:
        print_error(_NAME, f"note: whether kube-scheduler refused it is not known: {error}")
        return answer
    return answer if refused is None else with_refusal(answer, refused.at, refused.text)


def _answer(cluster: ClusterSnapshot, name: str) -> WhyAnswer:
    snapshot = cluster.snapshot
    group = group_named(snapshot, name, cluster.refused)
    if group in cluster.refused:
        return refusal(snapshot, group, cluster.refused[group])
    state = State(snapshot)
    plan = Engine(state).decide()
    return explain(snapshot, plan, group, turn_of(state, group))


def _add_arguments(parser: ArgumentParser) -> None:
    parser.formatter_class = RawDescriptionHelpFormatter
    parser.epilog = _EXIT_CODES
    parser.add_argument(
        "group",
        metavar="GROUP",
        help="the PodGroup, a pod of the group or the owner of its pods, as NAMESPACE/NAME; or the "
        "key of the group, such as NAMESPACE/job/NAME",
    )
    add_snapshot_argument(parser)
    add_output_argument(parser)


COMMAND: Final = Command(
    add_arguments=_add_arguments,
    run=run,
)
