"""Runs scheduling vectors and shows those that fail, for work on the engine.

`python -m tests.conformance.scheduling [--only GLOB] [-v]`; `-v` shows the decisions of each round.
"""

import argparse
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path

from controller.engine.decide.cycle import plan
from tests.conformance.scheduling.departures import DEPARTURES
from tests.conformance.scheduling.reading import read_vector, vector_paths
from tests.conformance.scheduling.report import describe
from tests.conformance.scheduling.rounds import Result, run
from tests.conformance.scheduling.vector import VectorError

_SHARED = Path(__file__).parents[4] / "shared" / "conformance"
_WORDS = ("passed", "departs", "failed", "unsound", "crashed", "too slow", "not read", "not strict")
_BAD = ("failed", "unsound", "crashed", "too slow", "not read")


def main() -> int:
    """Runs them. Returns 1 if one fails that is not listed as a departure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", metavar="GLOB", default="*", help="of these file names")
    parser.add_argument("--vectors", metavar="DIR", type=Path, default=_SHARED)
    parser.add_argument("-v", "--verbose", action="store_true", help="the decisions of each round")
    parser.add_argument("-q", "--quiet", action="store_true", help="only names and totals")
    parser.add_argument("-a", "--all", action="store_true", help="those that pass too")
    parser.add_argument("--limit", metavar="SECONDS", type=float, default=30, help="of a vector")
    arguments = parser.parse_args()
    totals: Counter[tuple[str, str]] = Counter()
    for path in vector_paths(arguments.vectors):
        if not fnmatch(path.name, arguments.only) and not fnmatch(path.stem, arguments.only):
            continue
        began = time.perf_counter()
        kind, word, text = _try(path, arguments.limit, verbose=arguments.verbose)
        took = time.perf_counter() - began
        totals[kind, word] += 1
        if word in _BAD or arguments.all:
            shown = path.name if arguments.quiet else f"{text}\n"
            print(f"{word.upper()} in {took:.2f} s: {shown}")
    _print_totals(totals)
    return int(any(word in _BAD for _, word in totals))


def _try(path: Path, limit: float, *, verbose: bool) -> tuple[str, str, str]:
    """The kind of a vector, what came of it in a word, and the whole story."""
    try:
        vector = read_vector(path.read_text())
    except VectorError as error:
        return "?", "not read", f"{path.name}: {error}"
    case = describe(path.name, vector, None, verbose=verbose)
    if not vector.strict.status:
        return vector.kind, "not strict", case
    try:
        with _interrupted_after(limit):
            result = run(vector, plan)
    except VectorError as error:
        return vector.kind, "not read", f"{case}\n  {error}"
    except TimeoutError:
        trace = traceback.format_exc(limit=None if verbose else -6)
        return vector.kind, "too slow", f"{case}\n{trace}"
    except Exception:  # noqa: BLE001 - the others are run all the same
        trace = traceback.format_exc(limit=None if verbose else -4)
        return vector.kind, "crashed", f"{case}\n{trace}"
    story = describe(path.name, vector, result, verbose=verbose)
    return vector.kind, _word(path.name, result), story


@contextmanager
def _interrupted_after(seconds: float) -> Iterator[None]:
    """Raises TimeoutError in a search that does not end."""

    def interrupt(*_: object) -> None:
        raise TimeoutError(f"it takes longer than {seconds:g} s")

    signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _word(name: str, result: Result) -> str:
    if result.unsound:
        return "unsound"
    if name in DEPARTURES:
        return "departs" if result.differences else "failed"
    return "failed" if result.differences else "passed"


def _print_totals(totals: Counter[tuple[str, str]]) -> None:
    kinds = sorted({kind for kind, _ in totals})
    words = [word for word in _WORDS if any(totals[kind, word] for kind in kinds)]
    width = max(map(len, [*kinds, "total"]))
    print(" " * width, *(f"{word:>10}" for word in words))
    for kind in kinds:
        print(f"{kind:{width}}", *(f"{totals[kind, word] or '':>10}" for word in words))
    sums = [sum(totals[kind, word] for kind in kinds) for word in words]
    print(f"{'total':{width}}", *(f"{count:>10}" for count in sums))


if __name__ == "__main__":
    sys.exit(main())
