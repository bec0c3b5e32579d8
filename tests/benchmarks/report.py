"""Prints measurements as they come, and all of them at the end."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final, TextIO

from tests.benchmarks.measurement import Measurement

_HEADER: Final = (
    "fleet", "what", "typical", "worst", "unit", "goal", "", "of Go",
    "Go, all nodes", "500 nodes", "first fit", "KAI, end to end",
)  # fmt: skip
_LEFT: Final = 2
"""The number of columns with text; the others have numbers."""


def say(measurement: Measurement, *, judge: bool, out: TextIO = sys.stdout) -> None:
    """Prints one measurement on a line; `judge` says whether its goal is met."""
    parts = [f"{measurement.fleet:14} {measurement.what:58}", f"{_number(measurement.value):>8}"]
    parts.append(f"{measurement.unit:4}")
    if measurement.goal is not None:
        parts.append(f"goal {measurement.goal:g} {measurement.unit}")
    if measurement.ratio is not None:
        parts.append(
            f"{_number(measurement.ratio)} of Go's {_number(measurement.upstream.all_nodes)}"
        )
    if measurement.upstream.first_fit is not None:
        parts.append(f"(first fit {_number(measurement.upstream.first_fit)})")
    if measurement.kai is not None:
        parts.append(f"(KAI, end to end with its API server: {_number(measurement.kai)})")
    if judge and measurement.has_goal:
        parts.append(_verdict(measurement))
    if measurement.note:
        parts.append(f"[{measurement.note}]")
    print(" ".join(parts), file=out, flush=True)


def table(measurements: Sequence[Measurement], *, judge: bool) -> str:
    """All measurements in columns."""
    rows = [_HEADER, *(_row(measurement, judge=judge) for measurement in measurements)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADER))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column < _LEFT else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def markdown(measurements: Sequence[Measurement], *, judge: bool) -> str:
    """All measurements as a table in Markdown."""
    rows = [
        _HEADER,
        ("---",) * len(_HEADER),
        *(_row(measurement, judge=judge) for measurement in measurements),
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def extremes(measurements: Sequence[Measurement]) -> str:
    """The best and the worst of all decisions beside upstream's for all nodes."""
    compared = [(each.ratio, each) for each in measurements if each.ratio is not None]
    if not compared:
        return "nothing was compared with upstream"
    compared.sort(key=lambda pair: pair[0])
    return "\n".join(
        f"{which} beside upstream's sweep: {_number(ratio)} of it: {each.fleet}, {each.what}"
        for which, (ratio, each) in (("best", compared[0]), ("worst", compared[-1]))
    )


def write_json(measurements: Sequence[Measurement], scale: float, file: Path) -> None:
    """Writes all measurements for programs."""
    results = [
        {**asdict(measurement), "ratio": measurement.ratio, "met": measurement.is_met}
        for measurement in measurements
    ]
    file.write_text(json.dumps({"scale": scale, "measurements": results}, indent=1) + "\n")


def _row(measurement: Measurement, *, judge: bool) -> tuple[str, ...]:
    upstream = measurement.upstream
    return (
        measurement.fleet,
        measurement.what,
        _number(measurement.value),
        _number(measurement.worst),
        measurement.unit,
        "" if measurement.goal is None else f"{measurement.goal:g}",
        _verdict(measurement) if judge and measurement.has_goal else "",
        _number(measurement.ratio),
        _number(upstream.all_nodes),
        _number(upstream.some_nodes),
        _number(upstream.first_fit),
        _number(measurement.kai),
    )


def _verdict(measurement: Measurement) -> str:
    return "met" if measurement.is_met else "MISSED"


def _number(value: float | None) -> str:
    """Three digits that matter."""
    if value is None:
        return ""
    if abs(value) >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}"
