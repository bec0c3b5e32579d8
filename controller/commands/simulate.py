"""`carina simulate`: who would run when and where, in virtual time."""

from argparse import ArgumentParser, ArgumentTypeError, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from carina_dra.allocator.preference import Policy
from carina_dra.cli.command import Command
from carina_dra.cli.output import OutputFormat, add_output_argument, render
from carina_dra.cli.progress import Show, progress
from carina_dra.kube.collector_pause import collector_paused
from carina_dra.resource.errors import BadValueError
from controller.commands.input import print_error, read_input
from controller.engine.decide.cycle import Engine
from controller.engine.files.amount import read_duration
from controller.engine.model.plan import Plan
from controller.engine.simulate.file import Overrides, read_trace
from controller.engine.simulate.picture import svg
from controller.engine.simulate.plot import PlotUnavailableError, png
from controller.engine.simulate.record import Record
from controller.engine.simulate.report import clock, comparison, document, table
from controller.engine.simulate.simulator import simulate
from controller.engine.simulate.trace import Trace
from controller.engine.state.state import State

__all__ = ["COMMAND"]

SIMULATED: Final = 0
INVALID_INPUT: Final = 2

_NAME: Final = "simulate"
_EXIT_CODES: Final = f"""\
exit codes:
  {SIMULATED}  the simulation ran to its end
  {INVALID_INPUT}  an argument or the file is not valid, or a PNG is wanted without matplotlib
"""


def run(arguments: Namespace) -> int:
    """Simulates, prints what happened, and writes pictures; errors go to standard error."""
    try:
        with collector_paused(freeze=True):
            source, content = read_input(arguments.file)
            overrides = Overrides(arguments.until, arguments.seed)
            trace = read_trace(source, content, overrides)
        if arguments.policy is not None:
            trace = trace.placed_by(arguments.policy)
        traces = [trace, *map(trace.placed_by, arguments.compare)]
        with progress() as show:
            records = [_simulate(variant, show) for variant in traces]
        _write_pictures(records, arguments.svg, arguments.png)
    except (ValueError, PlotUnavailableError) as error:
        print_error(_NAME, str(error))
        return INVALID_INPUT
    if len(records) == 1:
        shown, written = list(table(records[0])), document(records[0])
    else:
        shown = list(comparison(records))
        written = {"simulations": [document(record) for record in records]}
    print(render(OutputFormat(arguments.output), document=written, table=shown))
    return SIMULATED


def _simulate(trace: Trace, show: Show) -> Record:
    until = "" if trace.until is None else f" of {clock(trace.until - trace.start.now)}"

    def decider(state: State) -> Callable[[], Plan]:
        engine = Engine(state)

        def decide() -> Plan:
            show(f"simulated {clock(state.now - trace.start.now)}{until}")
            return engine.decide()

        return decide

    return simulate(trace, decider)


def _write_pictures(records: Sequence[Record], as_svg: Path | None, as_png: Path | None) -> None:
    if as_png is not None:
        as_png.write_bytes(png(records))
    if as_svg is not None:
        as_svg.write_text(svg(records))


def _duration(text: str) -> float:
    try:
        return read_duration(text)
    except BadValueError as error:
        raise ArgumentTypeError(f"{text!r} {error.problem}") from None


def _policy(text: str) -> Policy:
    try:
        return Policy.parse(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None


def _add_arguments(parser: ArgumentParser) -> None:
    parser.formatter_class = RawDescriptionHelpFormatter
    parser.epilog = _EXIT_CODES
    parser.add_argument(
        *("-f", "--file"),
        type=Path,
        required=True,
        metavar="FILE",
        help="a Scenario or a Snapshot, as YAML or JSON; - for standard input",
    )
    parser.add_argument(
        "--until",
        type=_duration,
        metavar="DURATION",
        help="end after this time, such as 36h, although there is more to do",
    )
    parser.add_argument(
        "--seed",
        type=int,
        metavar="NUMBER",
        help="seed of the generators, instead of the scenario's",
    )
    parser.add_argument(
        "--policy",
        type=_policy,
        metavar="POLICY",
        help="how to choose nodes and devices, instead of the settings: balanced, binpack, spread, "
        "fragmentation, or NODES/DEVICES such as spread/binpack; queues and jobs with a placement "
        "keep theirs",
    )
    parser.add_argument(
        "--compare",
        action="append",
        type=_policy,
        default=[],
        metavar="POLICY",
        help="simulate with this policy as well, and show both side by side; may be repeated",
    )
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw a picture, as SVG")
    parser.add_argument(
        "--png", type=Path, metavar="FILE", help="draw a picture, as PNG; needs carina-dra[plot]"
    )
    add_output_argument(parser)


COMMAND: Final = Command(
    add_arguments=_add_arguments,
    run=run,
)
