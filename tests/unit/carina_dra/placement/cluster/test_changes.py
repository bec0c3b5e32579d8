"""What has changed since a moment, the last change first."""

from carina_dra.placement.cluster.changes import Changes


def _changes(names: str) -> Changes[str]:
    changes = Changes[str]()
    for name in names:
        changes.add(name)
    return changes


def test_each_name_comes_once_by_its_last_change() -> None:
    changes = _changes("abcab")
    assert "".join(changes.since(0)) == "bac"
    assert len(changes) == 3


def test_changes_after_a_moment_do_not_include_that_of_the_moment() -> None:
    changes = _changes("ab")
    moment = changes.now
    assert list(changes.since(moment)) == []
    changes.add("a")
    assert list(changes.since(moment)) == ["a"]


def test_changes_that_were_forgotten_are_not_known_since_before() -> None:
    changes = _changes("ab")
    before, moment = changes.now - 1, changes.now
    assert changes.is_known_since(0)
    changes.forget_all_but("b")
    assert list(changes.since(0)) == ["b"]
    assert [changes.is_known_since(one) for one in (0, before, moment)] == [False, False, True]
