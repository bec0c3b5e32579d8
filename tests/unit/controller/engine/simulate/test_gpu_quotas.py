"""No name that a tenant chooses for GPUs takes more of them than its queue may have."""

from typing import Any

import pytest
import yaml

from controller.engine.decide.cycle import Engine
from controller.engine.simulate.file import read_trace
from controller.engine.simulate.record import Record
from controller.engine.simulate.simulator import simulate
from tests.unit.controller.engine.simulate.scenarios import HEADER

_WHOLE = "device.attributes['gpu.carina.dev'].profile.startsWith('7g')"
_AS_PARTITIONS = {"deviceClass": "mig.gpu.carina.dev", "count": 1, "selectors": [_WHOLE]}
_BY_ANOTHER_CLASS = {"deviceClass": "gold", "count": 1}
_AS_SHARES = {
    "deviceClass": "share.gpu.carina.dev",
    "count": 1,
    "capacity": {"memory": "80Gi", "cores": 100},
}
_PLAIN = {"deviceClass": "gpu.carina.dev", "count": 1}
_GOLD = """
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gold}
spec:
  selectors:
  - cel:
      expression: >-
        device.driver == 'gpu.carina.dev'
        && device.attributes['gpu.carina.dev'].type == 'gpu'
"""
_EVERY_NAME = pytest.mark.parametrize(
    "devices",
    [_PLAIN, _AS_PARTITIONS, _AS_SHARES, _BY_ANOTHER_CLASS],
    ids=["whole", "partitions", "shares", "class"],
)


def _simulated(resource: dict[str, Any], devices: dict[str, Any], **of_a: object) -> Record:
    """Queue a asks for all 8 GPUs of a node; a minute later b, whose quota is 7, asks for 7."""
    scenario = {
        **HEADER,
        "name": "s",
        "nodes": [
            {
                "name": "h100",
                "count": 1,
                "cpu": 96,
                "memory": "1Ti",
                "gpus": 8,
                "gpuMemory": "80Gi",
                "product": "H100",
                "devices": ["gpu", "mig", "share"],
            }
        ],
        "queues": [
            {"name": "a", "resources": [{**resource, "quota": 1, **of_a}]},
            {"name": "b", "resources": [{**resource, "quota": 7}]},
        ],
        "jobs": [
            {
                "name": "taken",
                "queue": "a",
                "count": 8,
                "duration": "1h",
                "cpu": 1,
                "devices": [devices],
            },
            {
                "name": "mine",
                "queue": "b",
                "arrival": "1m",
                "count": 7,
                "duration": "10m",
                "cpu": 1,
                "gpus": 1,
            },
        ],
        "until": "30m",
    }
    text = yaml.safe_dump(scenario) + _GOLD
    return simulate(read_trace("s.yaml", text.encode()), lambda state: Engine(state).decide)


def _running(record: Record, queue: str, at: float) -> int:
    return sum(
        run.started <= at and (run.ended is None or run.ended > at)
        for job in record.jobs
        if job.queue == queue
        for run in job.runs
    )


@_EVERY_NAME
def test_a_limit_in_gpus_holds_by_every_name(devices: dict[str, Any]) -> None:
    record = _simulated({"gpus": {}}, devices, limit=1)
    assert _running(record, "a", 30) == 1
    assert _running(record, "b", 65) == 7


@_EVERY_NAME
def test_a_limit_in_gpus_of_a_model_holds_by_every_name(devices: dict[str, Any]) -> None:
    record = _simulated({"gpus": {"model": "H100"}}, devices, limit=1)
    assert _running(record, "a", 30) == 1
    assert _running(record, "b", 65) == 7


@_EVERY_NAME
def test_a_quota_in_gpus_is_given_back_by_every_name(devices: dict[str, Any]) -> None:
    record = _simulated({"gpus": {}}, devices)
    assert _running(record, "a", 30) == 8
    assert _running(record, "b", 300) == 7
    assert _running(record, "a", 300) == 1


@pytest.mark.parametrize(
    ("devices", "running"),
    [(_PLAIN, 1), (_BY_ANOTHER_CLASS, 1), (_AS_PARTITIONS, 0), (_AS_SHARES, 0)],
    ids=["whole", "class", "partitions", "shares"],
)
def test_a_limit_by_class_counts_what_it_selects_and_refuses_gpus_that_it_does_not(
    devices: dict[str, Any], running: int
) -> None:
    record = _simulated({"deviceClass": "gpu.carina.dev"}, devices, limit=1)
    assert _running(record, "a", 30) == running
    assert _running(record, "b", 65) == 7
