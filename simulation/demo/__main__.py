"""Runs the demo: `python -m simulation.demo`. Exits with 0 only if every check passed."""

import argparse
import signal
import sys

from carina_dra.kube.errors import ApiError
from simulation.demo import embedded, real_cluster
from simulation.demo.console import Console, DemoError


def main() -> int:
    """Runs the demo; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m simulation.demo", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="wait for Ctrl-C while the pods run")
    parser.add_argument(
        "--real", action="store_true", help="use a real Kubernetes (needs Go, root and Linux)"
    )
    options = parser.parse_args()
    # SystemExit unwinds the stack, which cleans up.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    console = Console(sys.stdout)
    try:
        run = real_cluster.run if options.real else embedded.run
        run(console, keep=options.keep)
    except (DemoError, ApiError) as error:
        print(f"\nThe demo failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
