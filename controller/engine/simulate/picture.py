"""A simulation as a picture (SVG): GPUs in use and jobs waiting by queue, and how long they wait.

Simulations that are compared are side by side, on the same scales.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import ceil, floor, log10
from typing import Final
from xml.sax.saxutils import escape

from controller.engine.simulate.record import Record
from controller.engine.simulate.report import clock
from controller.engine.simulate.series import Series, series
from controller.engine.simulate.summary import Summary, summarize

PARTS: Final = 300
"""How many points a line has."""
COLOURS: Final = (
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#999999",
)  # fmt: skip
"""Told apart by people who do not tell red from green (Okabe and Ito)."""
_WIDTH, _LEFT, _RIGHT = 560, 56, 16
_HEIGHT, _GAP, _TOP = 180, 56, 72
_PLOT: Final = _WIDTH - _LEFT - _RIGHT
_BAR: Final = 14
_TICKS: Final = 6


def svg(records: Sequence[Record]) -> str:
    """The picture of one simulation, or of several side by side."""
    lines = [series(record, PARTS) for record in records]
    summaries = [summarize(record) for record in records]
    queues = records[0].queues
    gpus = max(max(line.gpus) for line in lines)
    jobs = max(max(_stack(line.waiting)[-1], default=0) for line in lines)
    wait = max(queue.waits.p95 for summary in summaries for queue in summary.queues.values())
    hours = max(line.hours[-1] for line in lines)
    width = _WIDTH * len(records)
    height = _TOP + 2 * (_HEIGHT + _GAP) + len(queues) * 2 * _BAR + _GAP
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        *_legend(queues),
    ]
    for index, (record, line, summary) in enumerate(zip(records, lines, summaries, strict=True)):
        title = f"{record.name}, {record.policy}: {summary.utilisation:.1%} of the GPUs in use"
        parts.append(f'<g transform="translate({index * _WIDTH} 0)">')
        parts.append(_text(_LEFT, 20, title, size=14))
        parts += _panel(_TOP, "GPUs in use", line, line.in_use, gpus, hours, limit=line.gpus)
        parts += _panel(_TOP + _HEIGHT + _GAP, "jobs waiting", line, line.waiting, jobs, hours)
        parts += _bars(_TOP + 2 * (_HEIGHT + _GAP), queues, summary, wait)
        parts.append("</g>")
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def _panel(
    top: float,
    title: str,
    line: Series,
    values: Mapping[str, Sequence[float]],
    most: float,
    hours: float,
    limit: Sequence[float] | None = None,
) -> Iterator[str]:
    """Stacked areas by queue; `limit` is a line above them."""
    most = max(most, 1)
    yield _text(_LEFT, top - 6, title)

    def x(hour: float) -> float:
        return _LEFT + _PLOT * hour / hours

    def y(value: float) -> float:
        return top + _HEIGHT * (1 - value / (most * 1.05))

    for tick in _ticks(most):
        yield _line(_LEFT, y(tick), _LEFT + _PLOT, y(tick), "#dddddd")
        yield _text(_LEFT - 6, y(tick) + 4, f"{tick:g}", anchor="end")
    for tick in _ticks(hours):
        yield _text(x(tick), top + _HEIGHT + 14, f"{tick:g} h", anchor="middle")
    stacked = _stack(values)
    for index, (below, above) in enumerate(pairwise(stacked)):
        outline = [*_steps(line.hours, above), *reversed(list(_steps(line.hours, below)))]
        points = " ".join(f"{x(hour):.1f},{y(value):.1f}" for hour, value in outline)
        yield f'<polygon points="{points}" fill="{_colour(index)}"/>'
    if limit is not None:
        points = " ".join(f"{x(h):.1f},{y(value):.1f}" for h, value in _steps(line.hours, limit))
        yield f'<polyline points="{points}" fill="none" stroke="black" stroke-dasharray="4 3"/>'
    yield _line(_LEFT, top + _HEIGHT, _LEFT + _PLOT, top + _HEIGHT, "black")


def _bars(top: float, queues: Sequence[str], summary: Summary, most: float) -> Iterator[str]:
    """By queue, how long jobs wait: the mean, and in paler colour what 95 of 100 do not exceed."""
    yield _text(_LEFT, top - 6, "wait for the first start: mean, and 95% of the jobs")
    for index, queue in enumerate(queues):
        waits = summary.queues[queue].waits
        y = top + 2 * _BAR * index + 4
        longest = _PLOT * 0.75 * waits.p95 / most if most else 0
        mean = min(_PLOT * 0.75 * waits.mean / most, _PLOT) if most else 0
        colour = _colour(index)
        yield _rectangle(_LEFT, y, longest, _BAR, colour, opacity=0.4)
        yield _rectangle(_LEFT, y + _BAR / 4, mean, _BAR / 2, colour)
        text = f"{clock(waits.mean)}, {clock(waits.p95)}"
        yield _text(_LEFT + max(longest, mean) + 6, y + _BAR - 3, text)


def _legend(queues: Iterable[str]) -> Iterator[str]:
    x = float(_LEFT)
    for index, queue in enumerate(queues):
        yield _rectangle(x, 34, 10, 10, _colour(index))
        yield _text(x + 14, 43, queue)
        x += 30 + 7 * len(queue)


def _stack(values: Mapping[str, Sequence[float]]) -> list[list[float]]:
    """The sums of the first lines: of none, of the first, of the first two, and so on."""
    stacked = [[0.0] * max((len(line) for line in values.values()), default=PARTS)]
    for line in values.values():
        stacked.append([below + value for below, value in zip(stacked[-1], line, strict=True)])
    return stacked


def _steps(bounds: Sequence[float], values: Sequence[float]) -> Iterator[tuple[float, float]]:
    """The corners of a line that has each value from one bound to the next."""
    before: float | None = None
    for start, value in zip(bounds, values, strict=False):
        if value != before:
            if before is not None:
                yield start, before
            yield start, value
        before = value
    yield bounds[-1], values[-1]


def _ticks(most: float) -> list[float]:
    """Round numbers from 0 to the most."""
    if most <= 0:
        return [0]
    raw = most / _TICKS
    power = 10.0 ** floor(log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw)
    return [index * step for index in range(ceil(most / step) + 1) if index * step <= most * 1.001]


def _colour(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 11) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">'
        f"{escape(text)}</text>"
    )


def _line(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'


def _rectangle(
    x: float, y: float, width: float, height: float, colour: str, *, opacity: float = 1
) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
        f'fill="{colour}" fill-opacity="{opacity:g}"/>'
    )
