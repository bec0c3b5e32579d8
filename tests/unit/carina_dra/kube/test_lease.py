import pytest

from carina_dra.kube.body import Body
from carina_dra.kube.lease import NO_RECORD, LeaseRecord, LeaseTiming, observe

TIMING = LeaseTiming(duration=15, renew_deadline=10, retry_period=2)


@pytest.mark.parametrize(
    ("duration", "deadline", "retry"), [(10, 10, 2), (15, 2, 2), (15, 10, 0), (5, 10, 2)]
)
def test_timing_leaves_room_for_a_retry_and_for_work_to_stop(
    duration: int, deadline: float, retry: float
) -> None:
    with pytest.raises(ValueError, match="retry_period < renew_deadline < duration"):
        LeaseTiming(duration, deadline, retry)


def test_the_first_holder_makes_no_transition() -> None:
    record = NO_RECORD.held_by("one", TIMING, 1_000_000_000)
    when = "2001-09-09T01:46:40.000000Z"
    assert record == LeaseRecord("one", 15, when, when, transitions=0)


def test_renewing_keeps_when_it_was_acquired() -> None:
    record = NO_RECORD.held_by("one", TIMING, 0).held_by("one", TIMING, 5)
    assert (record.acquired_at, record.renewed_at) == (
        "1970-01-01T00:00:00.000000Z",
        "1970-01-01T00:00:05.000000Z",
    )
    assert record.transitions == 0


def test_every_other_holder_is_a_transition() -> None:
    record = NO_RECORD.held_by("one", TIMING, 0).released(1).held_by("two", TIMING, 2)
    assert (record.holder, record.transitions) == ("two", 1)
    assert record.held_by("three", TIMING, 3).transitions == 2


def test_a_record_survives_the_api() -> None:
    record = NO_RECORD.held_by("one", TIMING, 0)
    assert LeaseRecord.of({"spec": record.spec()}) == record
    assert LeaseRecord.of({}).holder == ""


HELD = NO_RECORD.held_by("one", TIMING, 0)


def lease(record: LeaseRecord) -> Body:
    return {"spec": record.spec()}


class TestObservation:
    def test_a_lease_is_not_free_while_it_may_be_valid(self) -> None:
        seen = observe(lease(HELD), None, now=100.0)
        assert not seen.free_for("two", 114.9)
        assert seen.free_for("two", 115.0)

    def test_its_holder_may_always_renew_it(self) -> None:
        assert observe(lease(HELD), None, now=100.0).free_for("one", 100.0)

    def test_a_lease_without_holder_is_free(self) -> None:
        assert observe(lease(HELD.released(1)), None, now=100.0).free_for("two", 100.0)

    def test_looking_again_does_not_prolong_it(self) -> None:
        seen = observe(lease(HELD), None, now=100.0)
        assert observe(lease(HELD), seen, now=110.0).free_for("two", 115.0)

    def test_a_renewal_does(self) -> None:
        seen = observe(
            lease(HELD.held_by("one", TIMING, 1)), observe(lease(HELD), None, now=100.0), now=110.0
        )
        assert not seen.free_for("two", 124.9)
        assert seen.free_for("two", 125.0)
