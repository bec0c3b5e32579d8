"""`make bench`: the allocator, the engine, the controller and the node plugin, beside their goals.

    python -m tests.benchmarks                    everything
    python -m tests.benchmarks unlike mig         these fleets; `plugin` is the node plugin,
                                                  `image` the image and its processes,
                                                  `kube-scheduler` the stock scheduler,
                                                  `controller` the controller beside it, and
                                                  `engine` the engine, with `engine-...` on fleets,
                                                  and `packing` how full it gets a real cluster
    python -m tests.benchmarks --scale 0.1        fleets of a tenth of the nodes
    python -m tests.benchmarks --json FILE        the results for programs as well

Exits 1 if a goal is missed; goals are for fleets of full size. Each fleet has a process of its own,
so that the memory and the garbage of one do not slow another.
"""

import argparse
import multiprocessing
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.benchmarks import image, kube_scheduler, plugin, report, run
from tests.benchmarks.controller import comparison
from tests.benchmarks.engine import MEASURES
from tests.benchmarks.fleets import SCENARIOS
from tests.benchmarks.measurement import Measurement
from tests.benchmarks.packing import measure as packing
from tests.benchmarks.run import FULL_SIZE, Options
from tests.oracle import upstream


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints; returns the exit status."""
    parsed = _parser().parse_args(arguments)
    why_not = "--no-upstream" if parsed.no_upstream else upstream.why_not()
    if why_not is not None:
        print(f"not compared with upstream: {why_not}")
    else:
        upstream.program()
    options = Options(parsed.scale, why_not is None)
    measurements: list[Measurement] = []
    for name in parsed.names or _names():
        # Not forked: a fork would inherit this process's memory.
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
            measurements += process.submit(run.run, name, options).result()
    table = report.markdown if parsed.markdown else report.table
    print("\n" + table(measurements, judge=options.judge))
    print("\n" + report.extremes(measurements))
    if parsed.json is not None:
        report.write_json(measurements, options.scale, parsed.json)
    missed = any(each.has_goal and not each.is_met for each in measurements)
    return 1 if options.judge and missed else 0


def _names() -> list[str]:
    return [
        *(scenario.name for scenario in SCENARIOS),
        *MEASURES,
        packing.NAME,
        plugin.NAME,
        image.NAME,
        kube_scheduler.NAME,
        comparison.NAME,
    ]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = ", ".join(_names())
    parser.add_argument(
        "names", nargs="*", metavar="NAME", type=_name, help=f"what is measured: {names}"
    )
    parser.add_argument(
        "--scale", type=float, default=FULL_SIZE, help="size of the fleets, 1 is full"
    )
    parser.add_argument("--markdown", action="store_true", help="prints the table as Markdown")
    parser.add_argument("--json", type=Path, metavar="FILE", help="writes the results to a file")
    parser.add_argument("--no-upstream", action="store_true", help="measures Carina only")
    return parser


def _name(text: str) -> str:
    if text not in _names():
        raise argparse.ArgumentTypeError(f"{text}: the names are {', '.join(_names())}")
    return text


if __name__ == "__main__":
    sys.exit(main())
