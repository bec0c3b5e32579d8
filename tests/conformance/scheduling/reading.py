"""Finds scheduling vectors and reads them."""

import json
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from tests.conformance.scheduling.vector import (
    ACTIVE,
    LEAVING,
    NOT_APPLICABLE,
    SCHEMA,
    Vector,
    VectorError,
)

_VECTOR: Final = TypeAdapter(Vector)


def applies(content: object) -> bool:
    """Whether the JSON is a scheduling vector, of a case that applies to the engine."""
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        return False
    return NOT_APPLICABLE.isdisjoint(content["tags"])


def folder_of(given: Path) -> Path:
    """Where the vectors of the scheduler are: in a folder itself, or in `scheduling` below it."""
    below = given / "scheduling"
    return below if below.is_dir() else given


def vector_paths(given: Path) -> list[Path]:
    """The files of the cases that apply."""
    return [
        path
        for path in sorted(folder_of(given).glob("*.json"))
        if applies(json.loads(path.read_text()))
    ]


def read_vector(text: str) -> Vector:
    """Reads a vector.

    Raises:
        VectorError: a field or value is not known, or names do not refer to anything.
    """
    try:
        vector = _VECTOR.validate_json(text)
    except ValidationError as error:
        raise VectorError(str(error)) from error
    _check(vector)
    return vector


def _check(vector: Vector) -> None:
    jobs = {job.name: job for job in vector.jobs}
    tasks = [task.name for job in vector.jobs for task in job.tasks]
    nodes = {node.name for node in vector.cluster.nodes}
    if len(jobs) < len(vector.jobs) or len(set(tasks)) < len(tasks):
        raise VectorError("two jobs or two tasks have one name")
    for job in vector.jobs:
        leaves = {leaf.name for leaf in job.tree.leaves()}
        for task in job.tasks:
            if task.subgroup not in leaves:
                raise VectorError(f"task {task.name}: its job has no subgroup {task.subgroup}")
            if (task.state in ACTIVE or task.state in LEAVING) and task.node not in nodes:
                raise VectorError(f"task {task.name}: it runs on node {task.node}, of none")
    expect = vector.expect
    named = {*expect.tasks, *expect.unconstrained_tasks}
    unknown = (named - set(tasks)) | ({*expect.jobs} - {*jobs})
    unknown |= {each.job for each in expect.constraints} - {*jobs}
    if unknown:
        raise VectorError(f"expectations of what does not exist: {', '.join(sorted(unknown))}")
