"""How often something may happen."""

from controller.report.rate import TokenBucket


def test_a_burst_is_let_through_at_once_and_then_as_many_as_the_rate_allows() -> None:
    bucket = TokenBucket(rate=2.0, burst=3)

    assert [bucket.take(0.0) for _ in range(4)] == [True, True, True, False]
    assert bucket.wait(0.0) == 0.5
    assert [bucket.take(0.5), bucket.take(0.5)] == [True, False]


def test_a_long_pause_saves_no_more_than_a_burst() -> None:
    bucket = TokenBucket(rate=2.0, burst=3)
    bucket.take(0.0)

    assert [bucket.take(1000.0) for _ in range(4)] == [True, True, True, False]


def test_several_are_let_through_together_or_not_at_all() -> None:
    bucket = TokenBucket(rate=1.0, burst=3)

    assert bucket.take(0.0, 2)
    assert not bucket.take(0.0, 2)
    assert bucket.wait(0.0, 2) == 1.0
    assert bucket.take(0.0)


def test_a_clock_that_is_set_back_takes_nothing_away() -> None:
    bucket = TokenBucket(rate=1.0, burst=2)
    assert bucket.take(3600.0)

    assert bucket.take(0.0)
    assert bucket.wait(0.0) == 1.0
