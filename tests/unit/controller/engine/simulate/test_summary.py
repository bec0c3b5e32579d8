"""The numbers of a simulation, and its lines for pictures."""

from typing import Any

import pytest

from controller.engine.decide.cycle import Engine
from controller.engine.decide.nodes.stranded import Lack
from controller.engine.simulate.record import Record
from controller.engine.simulate.report import clock, comparison, table
from controller.engine.simulate.series import series
from controller.engine.simulate.simulator import simulate
from controller.engine.simulate.summary import WaitTimes, summarize
from tests.unit.controller.engine.simulate.scenarios import NODES, trace
from tests.unit.controller.engine.simulate.stand_in import FIRST_FIT

_QUEUES = [{"name": "q", "resources": [{"deviceClass": "gpu.carina.dev", "quota": 1}]}]


def run(*jobs: dict[str, Any], **fields: Any) -> Record:
    return simulate(trace(*jobs, queues=_QUEUES, **fields), FIRST_FIT)


def test_utilisation_is_the_mean_over_time() -> None:
    record = run({"duration": "1h", "gpus": 2}, {"duration": "30m", "gpus": 2})
    assert summarize(record).utilisation == pytest.approx(0.75)
    assert summarize(record).total.gpu_hours == pytest.approx(3)


def test_waits_are_those_before_the_first_start() -> None:
    record = run(*({"duration": "1h", "gpus": 2} for _ in range(4)))
    assert summarize(record).total.waits == WaitTimes(mean=1800, p95=3600, longest=3600)


def test_a_job_that_never_starts_waits_to_the_end() -> None:
    record = run({"duration": "1h", "gpus": 1}, {"gpus": 3}, until="2h")
    of = summarize(record).total
    assert (of.ended, of.waiting, of.waits.longest) == (1, 1, 7200)


def test_a_queue_counts_what_it_has_of_each_resource() -> None:
    record = run({"duration": "1h", "gpus": 2}, until="2h")
    fairness = summarize(record).queues["q"].fairness["deviceClass gpu.carina.dev"]
    assert fairness.allocated == pytest.approx(1)


def test_gpus_are_stranded_beside_a_job_that_has_all_of_the_cpu() -> None:
    """Each node has 2 GPUs and 8 cores: for half of the time, a GPU is left without a core."""
    record = run({"duration": "1h", "gpus": 1, "cpu": 8}, {"duration": "2h", "gpus": 1, "cpu": 1})
    assert summarize(record).stranded[Lack.CPU] == pytest.approx(0.5)
    assert "GPUs stranded, of use for nothing that is typically asked for: 0.5 for lack of cpu" in (
        table(record)
    )


def test_a_line_has_the_mean_of_each_part_of_the_time() -> None:
    record = run({"duration": "90m", "gpus": 2}, until="2h")
    lines = series(record, 4)
    assert lines.hours == [0, 0.5, 1, 1.5, 2]
    assert lines.in_use["q"] == pytest.approx([2, 2, 2, 0])
    assert lines.gpus == [4, 4, 4, 4]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00:00"), (3661, "1:01:01"), (90000, "25:00:00"), (-90, "-0:01:30")]
)
def test_a_time_is_written_as_on_a_clock(seconds: float, text: str) -> None:
    assert clock(seconds) == text


def test_only_a_few_jobs_are_listed_one_by_one() -> None:
    many = list(table(run({"duration": "1m", "count": 21})))
    few = list(table(run({"duration": "1m", "count": 20})))
    assert not any("q/j0-7" in line for line in many)
    assert any("q/j0-7" in line for line in few)


def test_a_comparison_has_a_column_for_each_simulation() -> None:
    record = run({"duration": "1m"})
    assert next(iter(comparison([record, record, record]))).split() == ["BALANCED"] * 3


def test_shares_of_queues_that_count_models_are_those_of_their_models() -> None:
    nodes = [{**NODES[0], "name": model.lower(), "product": model} for model in ("A100", "H100")]
    queues = [
        {"name": queue, "resources": [{"gpus": {"model": model}, "quota": 2}]}
        for queue, model in (("old", "A100"), ("new", "H100"))
    ]
    select = "device.attributes['gpu.carina.dev'].productName == '{}'"
    jobs = [
        {
            "queue": queue,
            "duration": "1h",
            "devices": [{"deviceClass": "gpu.carina.dev", "selectors": [select.format(model)]}],
        }
        for queue, model in (("old", "A100"), ("new", "H100"), ("new", "H100"))
    ]
    written = trace(*jobs, nodes=nodes, queues=queues)
    lines = list(table(simulate(written, lambda state: Engine(state).decide)))
    (header,) = (line for line in lines if line.startswith("QUEUE"))
    shares = {line.split()[0]: line.split()[-2:] for line in lines if line[:4] in ("old ", "new ")}
    assert header.split()[-2:] == ["SHARE", "SHORT"]
    assert shares == {"new": ["2.0", "0.0"], "old": ["1.0", "0.0"]}
