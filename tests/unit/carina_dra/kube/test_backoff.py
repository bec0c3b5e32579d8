from hypothesis import given
from hypothesis import strategies as st

from carina_dra.kube.backoff import Backoff


def test_delays_double_up_to_the_cap() -> None:
    backoff = Backoff(initial=1.0, cap=5.0, draw=lambda: 0.5)
    assert [backoff.next() for _ in range(5)] == [1.0, 2.0, 4.0, 5.0, 5.0]


def test_progress_begins_anew() -> None:
    backoff = Backoff(initial=1.0, cap=5.0, draw=lambda: 0.5)
    backoff.next()
    backoff.next()
    backoff.reset()
    assert backoff.next() == 1.0


@given(st.floats(min_value=0, max_value=1, exclude_max=True), st.integers(0, 20))
def test_every_delay_is_spread_around_its_middle(drawn: float, failures: int) -> None:
    spread = Backoff(initial=0.2, cap=30.0, jitter=0.5, draw=lambda: drawn)
    middle = Backoff(initial=0.2, cap=30.0, jitter=0.0)
    for _ in range(failures):
        spread.next()
        middle.next()
    delay = middle.next()
    assert 0.5 * delay <= spread.next() <= 1.5 * delay
