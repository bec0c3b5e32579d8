import pytest
from hypothesis import given
from hypothesis import strategies as st

from carina_dra.kube.body import ObjectKey
from carina_dra.kube.store import (
    Created,
    ObjectChange,
    Removed,
    Store,
    StoreEntry,
    Updated,
    Versions,
    difference,
)

A, B = ObjectKey("team", "a"), ObjectKey("team", "b")

entries = st.dictionaries(
    st.sampled_from([A, B, ObjectKey("", "a"), ObjectKey("team", "c")]),
    st.builds(StoreEntry, st.integers(1, 5), st.sampled_from(["red", "green", "blue"])),
)


def replayed(known: dict[ObjectKey, str], changes: list[ObjectChange[str]]) -> dict[ObjectKey, str]:
    result = dict(known)
    for change in changes:
        match change:
            case Created(key, value):
                assert key not in result
                result[key] = value
            case Updated(key, before, after):
                assert result[key] == before
                result[key] = after
            case Removed(key, value):
                assert result.pop(key) == value
    return result


@given(entries, entries)
def test_a_difference_leads_from_the_one_list_to_the_other(
    before: dict[ObjectKey, StoreEntry[str]], after: dict[ObjectKey, StoreEntry[str]]
) -> None:
    known = {key: entry.value for key, entry in before.items()}
    expected = {key: entry.value for key, entry in after.items()}
    for key, entry in before.items():  # an object at one version is always the same
        if key in after and after[key].version == entry.version:
            expected[key] = entry.value
    assert replayed(known, difference(before, after)) == expected


@given(entries)
def test_a_list_does_not_differ_from_itself(listed: dict[ObjectKey, StoreEntry[str]]) -> None:
    assert difference(listed, listed) == []


def test_what_is_put_is_reported_once() -> None:
    store: Store[str] = Store()
    assert store.put(A, StoreEntry(1, "red")) == Created(A, "red")
    assert store.put(A, StoreEntry(1, "red")) is None
    assert store.put(A, StoreEntry(2, "blue")) == Updated(A, "red", "blue")
    assert store.snapshot() == {A: "blue"}


def test_an_older_version_never_replaces_a_newer_one() -> None:
    store: Store[str] = Store()
    store.put(A, StoreEntry(5, "blue"))
    assert store.put(A, StoreEntry(4, "red")) is None
    assert store.remove(A, 4) is None
    assert store.get(A) == "blue"
    assert store.entry(A) == StoreEntry(5, "blue")


def test_a_list_replaces_whatever_is_known() -> None:
    store: Store[str] = Store()
    store.put(A, StoreEntry(5, "blue"))
    store.put(B, StoreEntry(6, "red"))
    assert store.replace({A: StoreEntry(4, "red")}) == [
        Removed(B, "red"),
        Updated(A, "blue", "red"),
    ]
    assert (store.entry(A), store.snapshot()) == (StoreEntry(4, "red"), {A: "red"})


def test_what_is_removed_is_gone() -> None:
    store: Store[str] = Store()
    store.put(A, StoreEntry(1, "red"))
    assert store.remove(A, 2) == Removed(A, "red")
    assert store.remove(A, 3) is None
    assert (store.get(A), len(store), store.snapshot()) == (None, 0, {})


@given(st.lists(entries))
def test_versions_tell_the_changes_that_a_store_tells(
    lists: list[dict[ObjectKey, StoreEntry[str]]],
) -> None:
    store: Store[str] = Store()
    versions: Versions[str] = Versions()
    for listed in lists:
        told = versions.replace(
            {key: StoreEntry(each.version, each.value) for key, each in listed.items()}
        )
        expected = [without_before(change) for change in store.replace(listed)]
        assert sorted(told, key=lambda change: change.key) == sorted(
            expected, key=lambda change: change.key
        )


def without_before(change: ObjectChange[str]) -> ObjectChange[str | None]:
    match change:
        case Created(key, value):
            return Created(key, value)
        case Updated(key, _, after):
            return Updated(key, None, after)
        case Removed(key):
            return Removed(key, None)


def test_versions_know_an_object_only_at_its_newest() -> None:
    versions: Versions[str] = Versions()
    assert versions.put(A, StoreEntry(5, "red")) == Created(A, "red")
    assert versions.put(A, StoreEntry(5, "red")) is None
    assert versions.remove(A, 4) is None
    assert versions.put(A, StoreEntry(6, "blue")) == Updated(A, None, "blue")
    assert versions.entry(A) == StoreEntry(6, None)
    assert versions.remove(A, 7) == Removed(A, None)
    assert (versions.remove(A, 8), versions.entry(A)) == (None, None)


@pytest.mark.parametrize("key", [A, ObjectKey("", "node")])
def test_a_key_can_be_read_from_its_text(key: ObjectKey) -> None:
    assert ObjectKey.read(str(key)) == key
