"""Scenarios as tests write them."""

import json
from typing import Any

from controller.engine.simulate.file import read_trace
from controller.engine.simulate.trace import Trace

HEADER: dict[str, Any] = {"apiVersion": "scheduling.carina.dev/v1alpha1", "kind": "Scenario"}
NODES: list[dict[str, Any]] = [{"name": "node", "count": 2, "cpu": 8, "memory": "64Gi", "gpus": 2}]


def scenario(*jobs: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A scenario with two nodes of two GPUs, and one queue, q."""
    queues = [{"name": "q"}]
    written = [{"name": f"j{index}", "queue": "q", **job} for index, job in enumerate(jobs)]
    return {**HEADER, "name": "s", "nodes": NODES, "queues": queues, "jobs": written, **fields}


def trace(*jobs: dict[str, Any], **fields: Any) -> Trace:
    """Its trace."""
    return read_trace("s.json", json.dumps(scenario(*jobs, **fields)).encode())
