"""Watches: every change from a version on, once and in order, for as long as they last."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from carina_dra.kube.api_resource import CONFIG_MAPS, EVENTS
from carina_dra.kube.client import Client, MergePatch, Selection
from carina_dra.kube.errors import Unreachable, VersionGone
from carina_dra.kube.watch import Added, Bookmark, Deleted, Modified, Watch
from tests.contract.kube.backend import Backend, ThroughProxy
from tests.samples.objects import config_map

NOTHING = Selection(labels="none=such")
"""A selection that nothing falls into."""
LASTS = 60
"""Seconds of a watch that does not end by itself before the test does."""


def next_events(watch: Watch, count: int) -> list[tuple[str, str]]:
    """The next so many events: their kind, and the object's color."""
    found: list[tuple[str, str]] = []
    for event in watch:
        match event:
            case Added(body) | Modified(body) | Deleted(body):
                found.append((type(event).__name__, body["data"].get("color")))
            case Bookmark():
                continue
        if len(found) == count:
            return found
    raise AssertionError(f"the watch ended after {found}")


@contextmanager
def another(api: Client, version: str) -> Iterator[threading.Thread]:
    """A thread that reads a watch which lasts for `LASTS` and has no events."""
    with api.watch(CONFIG_MAPS, NOTHING, resource_version=version, seconds=LASTS) as watch:
        reading = threading.Thread(target=lambda: list(watch))
        reading.start()
        try:
            yield reading
        finally:
            watch.interrupt()
            reading.join()


def version_of(api: Client, namespace: str) -> str:
    return api.list(CONFIG_MAPS, Selection(namespace)).resource_version


def paint(api: Client, namespace: str, color: str) -> None:
    api.patch(CONFIG_MAPS, "sample", MergePatch({"data": {"color": color}}), namespace=namespace)


def test_a_watch_yields_later_changes(api: Client, namespace: str) -> None:
    selection = Selection(namespace, fields="metadata.name=sample")
    version = version_of(api, namespace)
    with api.watch(CONFIG_MAPS, selection, resource_version=version) as watch:
        api.create(CONFIG_MAPS, config_map(namespace))
        paint(api, namespace, "red")
        api.delete(CONFIG_MAPS, "sample", namespace=namespace)
        assert next_events(watch, 3) == [("Added", "blue"), ("Modified", "red"), ("Deleted", "red")]


def test_a_watch_yields_changes_since_its_version(api: Client, namespace: str) -> None:
    selection = Selection(namespace, fields="metadata.name=sample")
    version = version_of(api, namespace)
    created = api.create(CONFIG_MAPS, config_map(namespace))
    paint(api, namespace, "red")
    with api.watch(CONFIG_MAPS, selection, resource_version=version) as watch:
        assert next_events(watch, 2) == [("Added", "blue"), ("Modified", "red")]
    later = created["metadata"]["resourceVersion"]
    with api.watch(CONFIG_MAPS, selection, resource_version=later) as watch:
        assert next_events(watch, 1) == [("Modified", "red")]


def test_what_leaves_the_selection_is_deleted_for_the_watch(api: Client, namespace: str) -> None:
    version = version_of(api, namespace)
    selection = Selection(namespace, labels="watched=yes")
    with api.watch(CONFIG_MAPS, selection, resource_version=version) as watch:
        api.create(CONFIG_MAPS, config_map(namespace))
        for value in ("yes", "no", "yes"):
            change = MergePatch({"metadata": {"labels": {"watched": value}}})
            api.patch(CONFIG_MAPS, "sample", change, namespace=namespace)
        kinds = [kind for kind, _ in next_events(watch, 3)]
    assert kinds == ["Added", "Deleted", "Added"]


def test_deletions_have_a_version_of_their_own(api: Client, namespace: str) -> None:
    created = api.create(CONFIG_MAPS, config_map(namespace))["metadata"]["resourceVersion"]
    selection = Selection(namespace, fields="metadata.name=sample")
    with api.watch(CONFIG_MAPS, selection, resource_version=created) as watch:
        api.delete(CONFIG_MAPS, "sample", namespace=namespace)
        deleted = next(event.body for event in watch if isinstance(event, Deleted))
    assert int(deleted["metadata"]["resourceVersion"]) > int(created)


def test_the_end_that_was_asked_for_is_no_error(api: Client, namespace: str) -> None:
    version = version_of(api, namespace)
    with (
        another(api, version) as longer,
        api.watch(CONFIG_MAPS, NOTHING, resource_version=version, seconds=1) as watch,
    ):
        assert not [event for event in watch if not isinstance(event, Bookmark)]
        assert longer.is_alive()


def test_bookmarks_carry_the_version_on(api: Client, namespace: str) -> None:
    version = version_of(api, namespace)
    # Where there is news for others, a server says so two seconds before the end at the latest.
    with api.watch(CONFIG_MAPS, NOTHING, resource_version=version, seconds=4) as watch:
        api.create(CONFIG_MAPS, config_map(namespace))
        bookmarks = [event for event in watch if isinstance(event, Bookmark)]
    assert bookmarks
    assert int(bookmarks[-1].resource_version) > int(version)


def test_a_version_too_old_is_gone(backend: Backend, api: Client, namespace: str) -> None:
    version = api.list(EVENTS, Selection(namespace)).resource_version
    for name in ("one", "two"):  # a watch begins one after its version, which must be forgotten too
        api.create(CONFIG_MAPS, config_map(namespace, name))
    backend.forget_history()
    with (
        pytest.raises(VersionGone, match=r"too old|compacted"),
        api.watch(EVENTS, Selection(namespace), resource_version=version) as watch,
    ):
        next(iter(watch))


def test_another_thread_can_end_a_watch_at_once(api: Client, namespace: str) -> None:
    version = version_of(api, namespace)
    with (
        another(api, version) as uninterrupted,
        api.watch(CONFIG_MAPS, NOTHING, resource_version=version, seconds=LASTS) as watch,
    ):
        threading.Timer(0.2, watch.interrupt).start()
        assert not [event for event in watch if not isinstance(event, Bookmark)]
        assert uninterrupted.is_alive()
    watch.interrupt()  # and again does no harm


def test_a_connection_that_breaks_ends_a_watch(disturbed: ThroughProxy, namespace: str) -> None:
    version = version_of(disturbed.client, namespace)
    with disturbed.client.watch(CONFIG_MAPS, NOTHING, resource_version=version) as watch:
        threading.Timer(0.2, disturbed.proxy.cut).start()
        with pytest.raises(Unreachable, match="watch configmaps"):
            list(watch)


def test_a_server_that_falls_silent_ends_a_watch(disturbed: ThroughProxy, namespace: str) -> None:
    version = version_of(disturbed.client, namespace)
    with disturbed.client.watch(
        CONFIG_MAPS, NOTHING, resource_version=version, seconds=1, timeout=1.0
    ) as watch:
        disturbed.proxy.fall_silent()
        with pytest.raises(Unreachable):
            list(watch)
