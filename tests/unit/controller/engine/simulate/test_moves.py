"""What moves in a simulation keeps its place until its job has replaced it, as in a cluster."""

from pathlib import Path
from typing import Any

import yaml

from controller.engine.decide.cycle import Engine
from controller.engine.simulate.file import read_trace
from controller.engine.simulate.record import JobRecord
from controller.engine.simulate.simulator import simulate

_SCENARIO = Path(__file__).parents[5] / "deploy" / "scenarios" / "consolidation.yaml"
_HOUR = 3600.0


def _jobs(*more: dict[str, Any], **fields: Any) -> dict[str, JobRecord]:
    """The jobs of the scenario in which two jobs move for a gang, and more of them."""
    body = yaml.safe_load(_SCENARIO.read_text()) | fields
    body["jobs"] = [*body["jobs"], *more]
    trace = read_trace("s.yaml", yaml.safe_dump(body).encode())
    record = simulate(trace, lambda state: Engine(state).decide)
    return {job.job.removeprefix("research/"): job for job in record.jobs}


def _late(at: str) -> dict[str, Any]:
    return {"name": "late", "queue": "research", "arrival": at, "duration": "1m", "gpus": 4}


def test_nobody_else_gets_the_place_of_what_moves() -> None:
    jobs = _jobs(_late("1h33s"))
    assert [jobs[name].runs[1].started for name in ("long-2", "long-3")] == [_HOUR + 40] * 2
    assert jobs["late"].started == jobs["gang"].ended


def test_a_job_that_replaces_too_late_has_lost_the_place() -> None:
    jobs = _jobs(_late("1h33s"), replacedAfter="5m")
    assert jobs["late"].started == _HOUR + 30 + 60
