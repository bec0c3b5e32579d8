"""What the process says of itself to the kubelet."""

from controller.report.health import STALLED_SECONDS, Health


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_who_waits_for_the_lease_is_healthy_and_ready_for_ever() -> None:
    clock = Clock()
    health = Health(clock)
    clock.now += 10 * STALLED_SECONDS
    assert (health.healthy(), health.ready()) == (None, None)


def test_a_leader_is_ready_when_all_is_read() -> None:
    unsynced = ["pods", "nodes"]
    health = Health(Clock())
    health.lead(lambda: unsynced)
    assert (health.healthy(), health.ready()) == (None, "not read yet: pods, nodes")
    unsynced.clear()
    assert health.ready() is None


def test_a_leader_without_progress_is_not_healthy() -> None:
    clock = Clock()
    health = Health(clock)
    clock.now += 10 * STALLED_SECONDS
    health.lead(list)
    clock.now += STALLED_SECONDS
    assert health.healthy() is None
    clock.now += 1
    assert health.healthy() == health.ready() == "nothing has been done for 61 s"
    health.progress()
    assert health.healthy() is None


def test_who_has_stopped_to_lead_waits_again() -> None:
    clock = Clock()
    health = Health(clock)
    health.lead(lambda: ["pods"])
    clock.now += 10 * STALLED_SECONDS
    health.follow()
    assert (health.healthy(), health.ready()) == (None, None)
