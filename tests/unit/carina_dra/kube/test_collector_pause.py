"""The garbage collector rests while long-lived objects are created, and passes over them later."""

import gc
import threading
from collections.abc import Iterator

import pytest

from carina_dra.kube.collector_pause import collector_paused


@pytest.fixture(autouse=True)
def unfrozen() -> Iterator[None]:
    assert gc.isenabled()
    yield
    gc.unfreeze()
    gc.enable()


def test_the_collector_rests_in_a_pause_and_works_after_it() -> None:
    with collector_paused():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_the_collector_works_after_an_error() -> None:
    with pytest.raises(ValueError, match="wrong"), collector_paused():
        raise ValueError("wrong")
    assert gc.isenabled()


def test_the_last_of_several_pauses_ends_it() -> None:
    with collector_paused():
        with collector_paused():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_the_pause_of_another_thread_counts() -> None:
    begun, end = threading.Event(), threading.Event()

    def pause() -> None:
        with collector_paused():
            begun.set()
            end.wait(10)

    thread = threading.Thread(target=pause)
    with collector_paused():
        thread.start()
        assert begun.wait(10)
    assert not gc.isenabled()
    end.set()
    thread.join(10)
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    with collector_paused():
        pass
    assert not gc.isenabled()


def test_objects_of_a_pause_are_collected_later_unless_they_are_frozen() -> None:
    before = gc.get_freeze_count()
    with collector_paused():
        pass
    assert gc.get_freeze_count() == before


def test_objects_are_frozen_at_the_end() -> None:
    before = gc.get_freeze_count()
    with collector_paused(freeze=True):
        made = [[number] for number in range(1000)]
        assert gc.get_freeze_count() == before
    assert gc.get_freeze_count() > before + len(made)


def test_objects_are_frozen_at_the_end_of_the_last_pause() -> None:
    before = gc.get_freeze_count()
    with collector_paused():
        with collector_paused(freeze=True):
            pass
        assert gc.get_freeze_count() == before
    assert gc.get_freeze_count() > before


def test_one_pause_that_freezes_does_not_make_the_next_one_freeze() -> None:
    with collector_paused(freeze=True):
        pass
    frozen = gc.get_freeze_count()
    kept = [[number] for number in range(1000)]
    with collector_paused():
        kept += [[number] for number in range(1000)]
    assert gc.get_freeze_count() <= frozen


def test_garbage_from_before_is_not_frozen() -> None:
    freed = threading.Event()

    class Cycle:
        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            freed.set()

    Cycle()
    assert not freed.is_set()
    with collector_paused(freeze=True):
        assert freed.is_set()
