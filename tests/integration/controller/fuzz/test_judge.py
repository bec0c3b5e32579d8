"""The judge counts physical GPUs, whatever part of them a claim has."""

import json
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import pytest

from carina_dra.kube.body import Body, ObjectKey
from carina_dra.kube.client import Listing
from carina_dra.kube.store import Created
from tests.integration.controller.fuzz.judge import Judge, _read_pod
from tests.samples.golden_slices import NODE, golden_file


@pytest.fixture
def judge() -> Judge:
    slices = json.loads(golden_file("dgx-h100").read_text())

    class Client:
        def list(self, _resource: object) -> Listing[Any]:
            return Listing(slices, "1")

    client: Any = Client()
    return Judge(client)


def _result(device: str, **amounts: str) -> Body:
    result: Body = {"request": "r", "driver": "gpu.carina.dev", "pool": NODE, "device": device}
    return result | ({"consumedCapacity": amounts} if amounts else {})


def _give(judge: Judge, name: str, *results: Body, queue: str = "q", user: str = "") -> None:
    body = {
        "metadata": {
            "namespace": "t",
            "name": name,
            "labels": {"scheduling.carina.dev/queue": queue},
        },
        "status": {
            "allocation": {"devices": {"results": list(results)}},
            "reservedFor": [{"name": user}] if user else [],
        },
    }
    judge._claim_changed(Created(ObjectKey("t", name), judge._read_claim(body)))


def test_a_whole_gpu_counts_1(judge: Judge) -> None:
    _give(judge, "a", _result("gpu-0"), _result("gpu-1"))
    assert judge.used() == {"q": 2}


@pytest.mark.parametrize(
    ("amounts", "part"),
    [
        ({"memory": "8Mi", "cores": "1"}, Fraction(1, 10)),
        ({"memory": "8Mi", "cores": "70"}, Fraction(7, 10)),
        ({"memory": "81559Mi", "cores": "1"}, Fraction(1)),
    ],
)
def test_a_share_counts_the_largest_of_its_parts_and_at_least_a_tenth(
    judge: Judge, amounts: dict[str, str], part: Fraction
) -> None:
    _give(judge, "a", _result("gpu-0-share", **amounts))
    assert judge.used() == {"q": part}


def test_a_partition_counts_the_largest_of_its_parts(judge: Judge) -> None:
    _give(judge, "a", _result("gpu-0-mig-1g10gb-19-6"))
    assert judge.used() == {"q": Fraction(1, 8)}


def test_nothing_of_one_gpu_counts_more_than_1_for_one_queue(judge: Judge) -> None:
    for index in range(12):
        _give(judge, f"c{index}", _result("gpu-0-share", memory="1Mi", cores="1"))
    assert judge.used() == {"q": 1}


def test_a_gpu_of_which_nobody_has_a_part_is_free(judge: Judge) -> None:
    assert judge.free() == {NODE: 8}
    _give(judge, "a", _result("gpu-0-share", memory="1Mi", cores="1"))
    assert judge.free() == {NODE: 7}


def test_a_device_that_two_claims_have_is_told(judge: Judge) -> None:
    _give(judge, "a", _result("gpu-0"))
    assert judge.doubled == []
    _give(judge, "b", _result("gpu-0"))
    assert len(judge.doubled) == 1
    _give(judge, "c", _result("gpu-1-share", memory="1Mi", cores="1"))
    _give(judge, "d", _result("gpu-1-share", memory="1Mi", cores="1"))
    assert len(judge.doubled) == 1


@pytest.mark.parametrize(
    ("ago", "grace", "conditions", "count"),
    [
        (5, 10, ["DisruptionTarget"], 0),
        (61, 10, ["DisruptionTarget"], 1),
        (5, 11, ["DisruptionTarget"], 1),
        (5, 10, ["Ready"], 1),
    ],
)
def test_a_pod_that_was_evicted_and_leaves_in_time_is_not_counted(
    judge: Judge, ago: int, grace: int, conditions: list[str], count: int
) -> None:
    at = (datetime.now(UTC) - timedelta(seconds=ago)).isoformat()
    metadata = {"namespace": "t", "name": "p", "deletionTimestamp": at}
    body = {
        "metadata": metadata | {"deletionGracePeriodSeconds": grace},
        "spec": {},
        "status": {"conditions": [{"type": kind} for kind in conditions]},
    }
    judge._pod_changed(Created(ObjectKey("t", "p"), _read_pod(body)))
    _give(judge, "a", _result("gpu-0"), user="p")
    assert judge.used().get("q", 0) == count


def test_what_runs_as_not_preemptible_counts_by_itself(judge: Judge) -> None:
    body = {
        "metadata": {
            "namespace": "t",
            "name": "p",
            "annotations": {"scheduling.carina.dev/preemptible": "false"},
        },
        "spec": {"nodeName": NODE},
    }
    judge._pod_changed(Created(ObjectKey("t", "p"), _read_pod(body)))
    _give(judge, "a", _result("gpu-0"), user="p")
    _give(judge, "b", _result("gpu-1"))
    assert judge.used_firmly() == judge.kept_firmly() == {"q": 1}
    assert judge.used() == {"q": 2}


def test_what_is_not_preemptible_keeps_each_gpu_of_which_it_has_a_part(judge: Judge) -> None:
    metadata = {
        "namespace": "t",
        "name": "p",
        "annotations": {"scheduling.carina.dev/preemptible": "false"},
    }
    body = {"metadata": metadata, "spec": {"nodeName": NODE}}
    judge._pod_changed(Created(ObjectKey("t", "p"), _read_pod(body)))
    for gpu in (0, 1):
        share = _result(f"gpu-{gpu}-share", memory="1Mi", cores="10")
        _give(judge, f"c{gpu}", share, user="p")
    assert (judge.used_firmly(), judge.kept_firmly()) == ({"q": Fraction(1, 5)}, {"q": 2})
