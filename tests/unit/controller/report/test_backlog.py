"""The order and the rate of writes."""

from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from controller.report.backlog import ROUTINE_INTERVAL, URGENT_INTERVAL, Backlog


def backlog(*, rate: float = 5000.0, burst: int = 5000) -> Backlog[str]:
    return Backlog(rate=rate, burst=burst)


def drain(backlog: Backlog[str], now: float) -> Iterator[str]:
    while (key := backlog.take(now)) is not None:
        yield key


def test_who_waits_longest_comes_first() -> None:
    queued = backlog()
    for key in ("b", "a", "c", "b"):
        queued.add(key, 0, urgent=True)
    assert list(drain(queued, 0)) == ["b", "a", "c"]


def test_owners_take_turns_and_each_has_its_rate() -> None:
    queued: Backlog[str] = Backlog(
        rate=100, burst=100, owner_of=lambda key: key[0], owner_rate=1, owner_burst=2
    )
    for key in ("a1", "a2", "a3", "a4", "b1", "b2", "b3"):
        queued.add(key, 0, urgent=True)
    assert list(drain(queued, 0)) == ["a1", "b1", "a2", "b2"]
    assert queued.wait(0) == 1
    assert list(drain(queued, 1)) == ["a3", "b3"]
    assert list(drain(queued, 2)) == ["a4"]
    assert queued.wait(2) is None


def test_an_owner_without_rate_left_does_not_delay_routine_writes_of_others() -> None:
    queued: Backlog[str] = Backlog(
        rate=100, burst=100, owner_of=lambda key: key[0], owner_rate=1, owner_burst=1
    )
    for key in ("a1", "a2"):
        queued.add(key, 0, urgent=True)
    queued.add("b1", 0, urgent=False)
    assert list(drain(queued, 0)) == ["a1", "b1"]


def test_urgent_writes_come_before_routine_ones() -> None:
    queued = backlog()
    queued.add("routine", 0, urgent=False)
    queued.add("urgent", 0, urgent=True)
    queued.add("promoted", 0, urgent=False)
    queued.add("promoted", 0, urgent=True)
    assert list(drain(queued, 0)) == ["urgent", "promoted", "routine"]


def test_an_object_is_written_at_most_once_an_interval() -> None:
    queued = backlog()
    queued.add("a", 0, urgent=True)
    assert queued.take(0) == "a"
    queued.add("a", 0.125, urgent=False)
    assert queued.wait(0.125) == ROUTINE_INTERVAL - 0.125
    queued.add("a", 0.25, urgent=True)
    assert queued.take(0.25) is None
    assert queued.wait(0.25) == URGENT_INTERVAL - 0.25
    assert queued.take(URGENT_INTERVAL) == "a"
    assert len(queued) == 0


def test_a_burst_is_followed_by_the_rate() -> None:
    queued = backlog(rate=2, burst=3)
    for index in range(6):
        queued.add(str(index), 0, urgent=True)
    assert list(drain(queued, 0)) == ["0", "1", "2"]
    assert queued.wait(0) == 0.5
    assert list(drain(queued, 0.5)) == ["3"]


def test_routine_writes_have_a_part_of_the_rate() -> None:
    queued = backlog(rate=10, burst=10)
    for index in range(6):
        queued.add(str(index), 0, urgent=False)
    assert list(drain(queued, 0)) == ["0", "1"]
    assert queued.wait(0) == 0.5
    assert list(drain(queued, 0.5)) == ["2"]


def test_a_delayed_urgent_write_is_waited_for_beside_routine_ones() -> None:
    queued = backlog(rate=0.5, burst=1)
    for key in "ab":
        queued.add(key, 0, urgent=False)
    assert queued.take(0) == "a"
    queued.add("c", 0, urgent=True, delay=1)
    assert queued.wait(0) == 1
    assert queued.take(1) == "c"


def test_a_delayed_write_waits() -> None:
    queued = backlog()
    queued.add("a", 0, urgent=True, delay=60)
    assert queued.take(59) is None
    assert queued.take(60) == "a"


def test_a_discarded_object_is_not_written() -> None:
    queued = backlog()
    queued.add("a", 0, urgent=True)
    queued.discard("a")
    assert queued.take(0) is None
    assert queued.wait(0) is None


def test_a_new_decision_is_written_at_once_while_thousands_are_refreshed() -> None:
    queued = backlog(rate=50, burst=100)
    for index in range(4_000):
        queued.add(f"old-{index}", 0, urgent=False)
    assert len(list(drain(queued, 0))) == 20
    queued.add("new", 0.02, urgent=True)
    assert queued.take(0.02) == "new"


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.booleans(), st.floats(0, 3), st.floats(0, 20)),
        max_size=30,
    )
)
def test_what_is_added_is_taken_once_all_intervals_have_passed(
    steps: list[tuple[str, bool, float, float]],
) -> None:
    queued, now, expected = backlog(), 0.0, set[str]()
    for key, urgent, pause, delay in steps:
        now += pause
        queued.add(key, now, urgent=urgent, delay=delay)
        expected.add(key)
        taken = queued.take(now)
        if taken is not None:
            expected.discard(taken)
        assert len(queued) == len(expected)
    assert set(drain(queued, now + 40)) == expected
    assert len(queued) == 0
