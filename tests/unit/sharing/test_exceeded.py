"""When a use has exceeded its memory."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sharing.exceeded import Exceeded, limit_mib


def after(*used: int, limit: int = 1000) -> Exceeded:
    state = Exceeded()
    for now, sample in enumerate(used):
        state = state.after(sample, limit, float(now))
    return state


@pytest.mark.parametrize(
    ("given_mib", "limit"), [(1, 65), (1000, 1064), (3200, 3264), (10_000, 10_200)]
)
def test_the_margin_is_64_mib_or_2_percent(given_mib: int, limit: int) -> None:
    assert limit_mib(given_mib) == limit


def test_one_sample_above_says_nothing() -> None:
    assert after(0, 2000, 0, 2000).since is None


def test_two_in_a_row_count_from_the_first() -> None:
    state = after(0, 1065, 1065)
    assert (state.since, state.times) == (1.0, 1)


def test_at_the_limit_is_not_above() -> None:
    assert after(1064, 1064, 1064).since is None


def test_it_ends_with_two_in_a_row_that_are_within_what_was_given() -> None:
    assert after(1065, 1065, 1000).since == 0.0
    ended = after(1065, 1065, 1000, 1000)
    assert (ended.since, ended.times) == (None, 1)


def test_between_the_two_limits_nothing_changes() -> None:
    assert after(1065, 1065, *[1001, 1064] * 10).since == 0.0
    assert after(*[1001, 1064] * 10).since is None


def test_each_time_is_counted() -> None:
    assert after(*[1065, 1065, 1000, 1000] * 3).times == 3


def test_samples_with_none_between_them_are_not_in_a_row() -> None:
    state = Exceeded().after(2000, 1000, 1.0).unseen().after(2000, 1000, 2.0)
    assert state.since is None
    assert state.after(2000, 1000, 3.0).since == 2.0


def test_what_is_not_seen_goes_on() -> None:
    assert after(2000, 2000).unseen().since == 0.0


@given(st.lists(st.integers(900, 1200)), st.integers(900, 1100))
def test_it_changes_only_after_two_samples_beyond_the_other_limit(
    used: list[int], given_mib: int
) -> None:
    states = [Exceeded()]
    for now, sample in enumerate(used):
        states.append(states[-1].after(sample, given_mib, float(now)))
    for number, (before, state) in enumerate(pairwise(states)):
        last_two = used[max(number - 1, 0) : number + 1]
        if before.since is None and state.since is not None:
            assert len(last_two) == 2
            assert min(last_two) > limit_mib(given_mib)
            assert state.times == before.times + 1
        elif before.since is not None and state.since is None:
            assert max(last_two) <= given_mib
            assert state.times == before.times
        else:
            assert (state.since, state.times) == (before.since, before.times)
