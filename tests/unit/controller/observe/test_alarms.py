"""Times at which keys are to be looked at again."""

from controller.observe.alarms import Alarms


def test_keys_are_due_in_the_order_of_their_times() -> None:
    alarms = Alarms()
    alarms.set("late", 2)
    alarms.set("early", 1)
    assert alarms.next == 1
    assert alarms.take_due(0) == []
    assert alarms.take_due(2) == ["early", "late"]
    assert alarms.next is None


def test_the_earliest_time_of_a_key_holds() -> None:
    alarms = Alarms()
    alarms.set("key", 2)
    alarms.set("key", 1)
    alarms.set("key", 3)
    assert alarms.take_due(1) == ["key"]
    assert alarms.next is None


def test_a_key_that_is_cancelled_is_not_due() -> None:
    alarms = Alarms()
    alarms.set("key", 1)
    alarms.cancel("key")
    assert alarms.next is None
    alarms.set("key", 2)
    assert alarms.take_due(2) == ["key"]


def test_setting_and_cancelling_again_and_again_takes_no_memory() -> None:
    alarms = Alarms()
    for time in range(10_000):
        alarms.set("key", time)
        alarms.cancel("key")
    assert len(alarms._heap) < 100
