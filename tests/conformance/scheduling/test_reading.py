"""Vectors are read strictly."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conformance.scheduling.reading import applies, read_vector, vector_paths
from tests.conformance.scheduling.sample import content, job, node, outcome, task
from tests.conformance.scheduling.vector import VectorError


def _with(path: str, value: object) -> dict[str, Any]:
    """A vector in which a field has another value; the path has dots."""
    case = content(job("a", task("a-0")))
    place: Any = case
    *way, last = path.split(".")
    for step in way:
        place = place[int(step) if step.isdigit() else step]
    place[last] = value
    return case


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("schema", "sched-vector/2"),
        ("surprise", 1),
        ("kind", "defragment"),
        ("cluster.nodes.0.gpuModel", "H200"),
        ("jobs.0.tasks.0.state", "frozen"),
        ("jobs.0.tasks.0.request.mig", {"nvidia.com/mig-1g.5gb": 1}),
        ("jobs.0.tree.unit", "pods"),
        ("jobs.0.afterEviction", "vanishes"),
        ("run.actions", ["allocate", "defragment"]),
        ("run.compare", "at-last"),
        ("run.params.reclaimResolveMethod", "queue"),
        ("run.params.reclaimerSaturationMultiplier", 2),
        ("run.params.quotaEnforced", False),
        ("expect.jobs", {"a": {**outcome("running"), "mood": "good"}}),
        ("expect.constraints", [{"type": "near", "job": "a"}]),
        ("strict.gpuGroups", "must"),
    ],
)
def test_unknown_field_or_word_is_an_error(path: str, value: object) -> None:
    with pytest.raises(VectorError, match=path.rpartition(".")[2]):
        read_vector(json.dumps(_with(path, value)))


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (content(job("a", task("t")), job("b", task("t"))), "one name"),
        (content(job("a", task("t", subgroup="other"))), "no subgroup other"),
        (content(job("a", task("t", "running", "node9"))), "node9"),
        (content(expect={"jobs": {"ghost": outcome("running")}}), "ghost"),
        (content(expect={"unconstrainedTasks": ["ghost-0"]}), "ghost-0"),
    ],
)
def test_name_that_refers_to_nothing_is_an_error(case: dict[str, Any], message: str) -> None:
    with pytest.raises(VectorError, match=message):
        read_vector(json.dumps(case))


@pytest.mark.parametrize("tag", ["mig", "numa", "custom-conf", "pvc"])
def test_case_of_what_is_left_to_others_does_not_apply(tag: str) -> None:
    assert applies(content())
    assert not applies({**content(), "tags": ["whole-gpu", tag]})


def test_vectors_are_found_in_a_folder_and_in_its_subfolder_scheduling(tmp_path: Path) -> None:
    folder = tmp_path / "scheduling"
    folder.mkdir()
    (folder / "reclaim-001.json").write_text(json.dumps(content()))
    (folder / "fairshare-001.json").write_text(json.dumps({"schema": "fairshare-vector/1"}))
    found = [folder / "reclaim-001.json"]
    assert vector_paths(tmp_path) == found
    assert vector_paths(folder) == found


def test_memory_of_gpus_is_read_by_its_name() -> None:
    case = read_vector(json.dumps(content(nodes=[node(gpuMemoryMiB=800)])))
    assert case.cluster.nodes[0].gpu_memory_mib == 800
