"""How many places the searches for victims of a cycle look for."""

from controller.engine.decide.gangs.search_limit import SearchLimit


def test_searches_end_after_so_many_places() -> None:
    limit = SearchLimit.of(steps=100, places=20)
    assert not limit.is_reached(119)
    assert limit.is_reached(120)


def test_what_is_looked_for_to_disturb_less_takes_nothing_from_the_searches() -> None:
    limit = SearchLimit.of(steps=100, places=20)
    limit.improve(15)
    assert not limit.is_reached(134)
    assert limit.is_reached(135)


def test_as_many_places_may_be_looked_for_to_disturb_less() -> None:
    limit = SearchLimit.of(steps=100, places=20)
    limit.improve(15)
    assert limit.improvements == 5
    limit.improve(15)  # what has begun comes to its end
    assert limit.improvements <= 0


def test_where_nothing_limits_a_cycle_no_search_ends() -> None:
    limit = SearchLimit.of(steps=100, places=None)
    limit.improve(1 << 40)
    assert not limit.is_reached(1 << 50)
    assert limit.improvements > 0
