"""The fuzzer as a command.

    python -m tests.integration.controller.fuzz --minutes 60 --seed 7
    python -m tests.integration.controller.fuzz --seed 7 --show 1234    # prints a step

It ends with status 1 if something was found, and writes the last steps and the controller's log.
"""

import argparse
import json
import secrets
import sys
import time
from pathlib import Path

from simulation.kubernetes import binaries
from tests.integration.controller.fuzz.recursion import deep_recursion
from tests.integration.controller.fuzz.run import run
from tests.integration.controller.fuzz.tenant import body_of
from tests.integration.controller.fuzz.world import TARGETS, running_world


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.integration.controller.fuzz")
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**32))
    parser.add_argument("--show", type=int, metavar="INDEX", help="print a step, and end")
    parser.add_argument("--folder", type=Path, default=Path("fuzz-results"))
    chosen = parser.parse_args()
    if chosen.show is not None:
        with deep_recursion():
            print(json.dumps(body_of(chosen.seed, chosen.show, TARGETS), indent=1))
        return 0
    if (why_not := binaries.why_no_control_plane()) is not None:
        print(why_not, file=sys.stderr)
        return 2
    with running_world() as world:
        report = run(
            world,
            seconds=chosen.minutes * 60,
            seed=chosen.seed,
            folder=chosen.folder,
            say=lambda line: print(f"{time.strftime('%H:%M:%S')} {line}", flush=True),
        )
    for line in report.summary():
        print(line)
    for line in (findings := [*report.findings(), *report.delays()]):
        print(f"FOUND: {line}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
