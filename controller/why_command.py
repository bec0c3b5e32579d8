"""`carina why`: why a group waits, by the engine's decision on the cluster or on a snapshot."""

from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from typing import Any, Final, assert_never

from carina_dra.cli.command import Command
from carina_dra.cli.output import OutputFormat, add_output_argument, render
from controller.cluster_snapshot import ClusterSnapshot
from controller.codec.value import codec_of
from controller.decide.cycle import Engine
from controller.explain import (
    Answer,
    Explanation,
    Refusal,
    explain,
    group_named,
    lines,
    refusal,
    turn_of,
)
from controller.input import add_snapshot_argument, chosen_cluster, print_error
from controller.state.state import State

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
        found = _answer(chosen_cluster(_NAME, arguments), arguments.group)
    except ValueError as error:
        print_error(_NAME, str(error))
        return INVALID_INPUT
    document: dict[str, Any] = codec_of(type(found)).write(found)
    print(render(OutputFormat(arguments.output), document=document, table=lines(found)))
    match found:
        case Explanation(waits=waits):
            return WAITS if waits else HAS_ALL
        case Refusal():
            return WAITS
    assert_never(found)


def _answer(cluster: ClusterSnapshot, name: str) -> Answer:
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
    summary="says why a group waits, and what would help",
    add_arguments=_add_arguments,
    run=run,
)
