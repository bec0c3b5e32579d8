"""Small vectors to try the harness with, in short notation."""

import json
from typing import Any

from tests.conformance.scheduling.reading import read_vector
from tests.conformance.scheduling.vector import Vector

_NONE = {"gpu": -1, "cpuMilli": -1, "memoryBytes": -1}


def node(name: str = "node0", gpus: int = 2, **more: Any) -> dict[str, Any]:
    """A node with GPUs of 100 MiB, and room for whatever else tasks need."""
    return {
        "name": name,
        "gpus": gpus,
        "gpuMemoryMiB": 100,
        "cpuMilli": 20_000,
        "memoryBytes": 20_000_000_000,
        "maxPods": 110,
        "labels": {},
        **more,
    }


def queue(name: str = "queue", quota: float = 1, rank: int = 0, **more: Any) -> dict[str, Any]:
    """A queue with a quota of GPUs."""
    return {
        "name": name,
        "parent": None,
        "priority": 100,
        "ageRank": rank,
        "quota": {**_NONE, "gpu": quota},
        "limit": _NONE,
        "weight": {"gpu": 1, "cpu": 1, "memory": 1},
        "preemptMinRuntimeS": None,
        "reclaimMinRuntimeS": None,
        **more,
    }


def leaf(name: str = "default", needs: int = 1) -> dict[str, Any]:
    """A part with tasks."""
    return {"name": name, "unit": "tasks", "min": needs, "topology": None, "children": []}


def task(name: str, state: str = "pending", on: str | None = None, **more: Any) -> dict[str, Any]:
    """A task that asks for one GPU, unless `request` says otherwise."""
    request = {
        "gpu": 1,
        "gpuFraction": None,
        "gpuMemoryMiB": None,
        "sharedDevices": None,
        "cpuMilli": 1000,
        "memoryBytes": 1_000_000_000,
        "claims": [],
        **more.pop("request", {}),
    }
    return {
        "name": name,
        "subgroup": "default",
        "state": state,
        "node": on,
        "taskPriority": None,
        "request": request,
        **more,
    }


def job(name: str, *tasks: dict[str, Any], rank: int = 0, **more: Any) -> dict[str, Any]:
    """A job; the higher its rank, the younger it is."""
    return {
        "name": name,
        "queue": "queue",
        "priority": 50,
        "preemptible": True,
        "ageRank": rank,
        "createdAgoS": 600 - rank,
        "lastStartAgoS": None,
        "staleForS": None,
        "stalenessGracePeriodS": None,
        "preemptionDelayS": 0,
        "afterEviction": "pending",
        "tree": {
            "name": "",
            "unit": "children",
            "min": 1,
            "topology": None,
            "children": [leaf()],
        },
        "tasks": list(tasks),
        **more,
    }


def outcome(status: str, on: str | None = None, *, strict: bool = True) -> dict[str, Any]:
    """What is expected of a task, or of every task of a job."""
    where = {} if on is None else {"node": on, "nodeStrict": strict}
    return {"status": status, "gpus": 1, **where}


def content(
    *jobs: dict[str, Any],
    expect: dict[str, Any] | None = None,
    strict: dict[str, Any] | None = None,
    run: dict[str, Any] | None = None,
    params: dict[str, Any] | None = None,
    **cluster: Any,
) -> dict[str, Any]:
    """A vector as JSON: one round of one action, compared at once, unless `run` says otherwise."""
    return {
        "schema": "sched-vector/1",
        "name": "a case",
        "kind": "allocate",
        "source": {
            "project": "none",
            "license": "none",
            "commit": "none",
            "file": "none",
            "line": 1,
            "func": "none",
            "index": 0,
            "case": "a case",
            "expectationsFrom": "table",
        },
        "tags": ["whole-gpu"],
        "cluster": {
            "nodes": [node()],
            "queues": [queue()],
            "topologies": [],
            "deviceClasses": [],
            "resourceSlices": [],
            "claims": [],
            **cluster,
        },
        "jobs": list(jobs),
        "run": {
            "actions": ["allocate"],
            "compare": "after-actions",
            "roundsUntil": 1,
            "roundsAfter": 0,
            "params": {
                "maxConsolidationPreemptees": -1,
                "allowConsolidatingReclaim": True,
                "gpuPlacement": "binpack",
                "cpuPlacement": "binpack",
                "gpuSharing": "pack",
                "stalenessGracePeriodS": 0,
                "schedulingSignatures": False,
                "kValue": 0,
                "reclaimResolveMethod": "lca",
                "reclaimerSaturationMultiplier": 1,
                "defaultPreemptMinRuntimeS": 0,
                "defaultReclaimMinRuntimeS": 0,
                "draEnabled": False,
                "quotaEnforced": True,
                "nodePredicates": True,
                **(params or {}),
            },
            **(run or {}),
        },
        "expect": {
            "jobs": {},
            "tasks": {},
            "nodes": {},
            "maxPerRound": {"binds": 1, "evictions": 1, "nominations": 1},
            "unconstrainedTasks": [],
            **(expect or {}),
        },
        "strict": {
            "status": True,
            "node": True,
            "gpuGroups": "advisory",
            "maxPerRound": False,
            "reasonText": False,
            "ageTieBreak": False,
            "taskTieBreak": False,
            "queueTieBreak": False,
            **(strict or {}),
        },
    }


def vector(*jobs: dict[str, Any], **more: Any) -> Vector:
    """A vector as `content` describes it."""
    return read_vector(json.dumps(content(*jobs, **more)))
