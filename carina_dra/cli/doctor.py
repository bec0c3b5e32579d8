"""`carina doctor`: checks what Carina needs in a cluster or on a node, and says what to do.

It changes nothing, and ends also if what it asks does not answer.
"""

from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterator, Sequence
from typing import Any, Final

from carina_dra.cli.command import Command
from carina_dra.cli.diagnosis import Diagnosis, Grade, diagnoses, scopes
from carina_dra.cli.output import OutputFormat, add_output_argument, render
from carina_dra.text_table import columns

ALL_WELL: Final = 0
SOMETHING_BAD: Final = 1
SOMETHING_TO_SEE: Final = 3
_EXIT_CODES: Final = f"""\
exit codes:
  {ALL_WELL}  all is as it has to be
  {SOMETHING_BAD}  something keeps GPUs from being used
  {SOMETHING_TO_SEE}  something works in part, or cannot be told
"""
_PATIENCE: Final = 30.0


def run(arguments: Namespace) -> int:
    """Prints a line for each finding."""
    checks = scopes()[arguments.scope].checks(arguments)
    found = diagnoses(checks, arguments.timeout)
    document: dict[str, Any] = {
        "scope": arguments.scope,
        "findings": [
            {"grade": finding.grade.value, "check": name, "text": finding.text}
            | ({"remedy": finding.remedy} if finding.remedy else {})
            for name, finding in found
        ],
    }
    print(render(OutputFormat(arguments.output), document=document, table=_lines(found)))
    return exit_code([finding for _, finding in found])


def exit_code(found: Sequence[Diagnosis]) -> int:
    """Returns the exit code, by the worst finding."""
    grades = {finding.grade for finding in found}
    if Grade.BAD in grades:
        return SOMETHING_BAD
    return SOMETHING_TO_SEE if Grade.WARN in grades else ALL_WELL


def _lines(found: Sequence[tuple[str, Diagnosis]]) -> Iterator[str]:
    yield from columns(
        ("", "CHECK", "FINDING"),
        ((finding.grade.value, name, _text(finding)) for name, finding in found),
    )


def _text(finding: Diagnosis) -> str:
    return f"{finding.text}; {finding.remedy}" if finding.remedy else finding.text


def _add_arguments(parser: ArgumentParser) -> None:
    parser.formatter_class = RawDescriptionHelpFormatter
    parser.epilog = _EXIT_CODES
    parser.add_argument(
        "scope",
        nargs="?",
        choices=list(scopes()),
        default="cluster",
        help="what to check; `node` is this machine, or the one of the plugin's pod [%(default)s]",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=_PATIENCE,
        metavar="SECONDS",
        help="after which checks that have not answered are shown as such [%(default)s]",
    )
    parser.add_argument(
        "--driver-name",
        default="gpu.carina.dev",
        metavar="NAME",
        help="name of the DRA driver [%(default)s]",
    )
    for name, scope in scopes().items():
        scope.add_arguments(parser.add_argument_group(f"for {name}"))
    add_output_argument(parser)


COMMAND: Final = Command(
    add_arguments=_add_arguments,
    run=run,
)
