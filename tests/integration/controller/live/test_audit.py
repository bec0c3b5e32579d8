"""The audit finds each device that two claims have, unless nobody can use one of them."""

from collections.abc import Iterable

import pytest

from carina_dra.kube.body import ObjectKey
from carina_dra.kube.store import StoreEntry
from tests.integration.controller.live.audit import Holder, Record, _Pods

_GPU = ("node", "gpu-0")
_OTHER_GPU = ("node", "gpu-1")
_POD = "uid-of-pod"
_OWN, _NEXT = (Holder(ObjectKey("team", name), None) for name in ("own", "next"))
_SPECIAL = Holder(ObjectKey("team", "special"), _POD)
_FOUND = "('node', 'gpu-0') of team/{} is given to team/{}"


@pytest.fixture
def record() -> Record:
    return Record()


def _give(record: Record, holder: Holder, version: int, *devices: tuple[str, str]) -> None:
    record.claim_written(holder, frozenset(devices), version)


def test_a_device_of_two_claims_is_found(record: Record) -> None:
    _give(record, _OWN, 1, _GPU)
    _give(record, _NEXT, 2, _GPU)

    assert record.doubled() == [_FOUND.format("own", "next")]


def test_a_device_that_was_given_back_may_be_given_again(record: Record) -> None:
    _give(record, _OWN, 1, _GPU)
    _give(record, _OWN, 2)
    _give(record, _NEXT, 3, _GPU)

    assert record.doubled() == []


def test_a_device_that_was_given_back_among_others_may_be_given_again(record: Record) -> None:
    _give(record, _OWN, 1, _GPU, _OTHER_GPU)
    _give(record, _OWN, 2, _OTHER_GPU)
    _give(record, _NEXT, 3, _GPU)

    assert record.doubled() == []


def test_an_allocation_for_a_pod_that_was_gone_is_excused(record: Record) -> None:
    _give(record, _OWN, 1, _GPU)
    record.pod_deleted(_POD, 2)
    _give(record, _SPECIAL, 3, _GPU)

    assert record.doubled() == []


def test_an_allocation_before_its_pod_went_is_found(record: Record) -> None:
    _give(record, _OWN, 1, _GPU)
    _give(record, _SPECIAL, 2, _GPU)
    record.pod_deleted(_POD, 3)

    assert record.doubled() == [_FOUND.format("own", "special")]


def test_a_device_of_a_pod_that_was_gone_may_be_given_to_the_next(record: Record) -> None:
    _give(record, _SPECIAL, 1, _GPU)
    record.pod_deleted(_POD, 2)
    _give(record, _OWN, 3, _GPU)

    assert record.doubled() == []


def test_a_device_of_a_pod_that_went_later_may_not_be_given_to_the_next(record: Record) -> None:
    _give(record, _SPECIAL, 1, _GPU)
    _give(record, _OWN, 2, _GPU)
    record.pod_deleted(_POD, 3)

    assert record.doubled() == [_FOUND.format("special", "own")]


@pytest.mark.parametrize("first", ["claim", "pod"])
def test_versions_count_and_not_which_watch_was_first(record: Record, first: str) -> None:
    _give(record, _OWN, 1, _GPU)
    if first == "pod":
        record.pod_deleted(_POD, 2)
    _give(record, _SPECIAL, 3, _GPU)
    if first == "claim":
        record.pod_deleted(_POD, 2)

    assert record.doubled() == []


def test_a_later_version_of_a_claim_does_not_excuse_its_allocation(record: Record) -> None:
    _give(record, _OWN, 1, _GPU)
    _give(record, _SPECIAL, 2, _GPU)
    record.pod_deleted(_POD, 3)
    _give(record, _SPECIAL, 4, _GPU)

    assert record.doubled() == [_FOUND.format("own", "special")]


def test_a_pod_that_had_a_node_excuses_nothing(record: Record) -> None:
    _give(record, _SPECIAL, 1, _GPU)
    record.pod_bound(_POD)
    record.pod_deleted(_POD, 2)
    _give(record, _OWN, 3, _GPU)

    assert record.doubled() == [_FOUND.format("special", "own")]


def test_a_pod_of_which_nobody_knows_when_it_went_excuses_nothing(record: Record) -> None:
    _give(record, _OWN, 1, _GPU)
    _give(record, _SPECIAL, 2, _GPU)

    assert record.doubled() == [_FOUND.format("own", "special")]


def test_two_claims_are_found_beside_a_third_that_is_excused(record: Record) -> None:
    _give(record, _SPECIAL, 1, _GPU)
    record.pod_deleted(_POD, 2)
    _give(record, _OWN, 3, _GPU)
    _give(record, _NEXT, 4, _GPU)

    assert record.doubled() == [_FOUND.format("own", "next")]


# --- when pods were deleted ---


def _known(deleted: dict[str, int], uids: Iterable[str]) -> _Pods:
    pods = _Pods(deleted.__setitem__)
    for uid in uids:
        pods.put(ObjectKey("team", uid), StoreEntry(1, {"metadata": {"uid": uid}}))
    return pods


def test_a_watch_tells_the_version_of_a_deletion() -> None:
    deleted: dict[str, int] = {}
    _known(deleted, ["a", "b"]).remove(ObjectKey("team", "a"), 7)

    assert deleted == {"a": 7}


def test_a_list_does_not_tell_the_version_of_a_deletion() -> None:
    deleted: dict[str, int] = {}
    _known(deleted, ["a"]).replace({})

    assert deleted == {}
