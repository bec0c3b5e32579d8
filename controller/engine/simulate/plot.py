"""The picture of a simulation as PNG, where matplotlib is installed (extra `plot`)."""

from collections.abc import Sequence
from io import BytesIO
from typing import Any

from controller.engine.simulate.picture import COLOURS, PARTS
from controller.engine.simulate.record import Record
from controller.engine.simulate.series import series
from controller.engine.simulate.summary import summarize


class PlotUnavailableError(RuntimeError):
    """matplotlib is not installed."""


def png(records: Sequence[Record]) -> bytes:
    """Draws what `picture.svg` draws.

    Raises:
        PlotUnavailableError: matplotlib is not installed.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - an extra
        from matplotlib.figure import Figure  # noqa: PLC0415 - the same
    except ImportError:
        raise PlotUnavailableError(
            "a PNG needs matplotlib; install carina-dra[plot], or write an SVG"
        ) from None
    figure = Figure(figsize=(8 * len(records), 8), layout="constrained")
    FigureCanvasAgg(figure)
    axes: Any = figure.subplots(3, len(records), squeeze=False, sharex="row", sharey="row")
    for column, record in enumerate(records):
        _draw([row[column] for row in axes], record)
    image = BytesIO()
    figure.savefig(image, format="png", dpi=120)
    return image.getvalue()


def _draw(axes: Sequence[Any], record: Record) -> None:
    lines, summary = series(record, PARTS), summarize(record)
    in_use, waiting, waits = axes
    in_use.set_title(
        f"{record.name}, {record.policy}: {summary.utilisation:.1%} of the GPUs in use"
    )
    for axis, values, label in (
        (in_use, lines.in_use, "GPUs in use"),
        (waiting, lines.waiting, "jobs waiting"),
    ):
        axis.stackplot(
            lines.hours[:-1], *values.values(), labels=list(values), colors=COLOURS, step="post"
        )
        axis.set_ylabel(label)
        axis.set_xlabel("hours")
    in_use.plot(lines.hours[:-1], lines.gpus, "k--", linewidth=1)
    in_use.legend(loc="lower right")
    names = list(record.queues)
    p95 = [summary.queues[name].waits.p95 / 60 for name in names]
    mean = [summary.queues[name].waits.mean / 60 for name in names]
    waits.barh(names, p95, color=COLOURS, alpha=0.4)
    waits.barh(names, mean, color=COLOURS, height=0.4)
    waits.set_xlabel("minutes until the first start: mean, and 95% of the jobs")
