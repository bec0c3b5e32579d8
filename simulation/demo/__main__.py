"""`python -m simulation.demo`: exit status 0 only if everything that was shown was right."""

import argparse
import signal
import sys

from carina_dra.kube.errors import ApiError
from simulation.demo import embedded, real_cluster
from simulation.demo.console import DemoError, Narrator


def main() -> int:
    """Runs the demo; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m simulation.demo", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="stop while the pods run, until Ctrl-C")
    parser.add_argument(
        "--real", action="store_true", help="on a real Kubernetes (Go, root, Linux)"
    )
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # unwinds, and cleans
    narrator = Narrator(sys.stdout)
    try:
        story = real_cluster.run if options.real else embedded.run
        story(narrator, keep=options.keep)
    except (DemoError, ApiError) as error:
        print(f"\nThe demo failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
