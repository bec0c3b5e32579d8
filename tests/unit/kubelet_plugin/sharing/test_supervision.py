"""Whoever has changed the record of daemons hears what carina-sharing makes of that change."""

import threading
from collections.abc import Callable, Sequence

import pytest

from carina_dra.sharing.message import (
    MpsDaemon,
    MpsDevice,
    Offers,
    Reference,
    SharingReport,
    WantedDaemon,
)
from kubelet_plugin.sharing.supervision import (
    Answered,
    NotAnswered,
    SharingAnswer,
    SharingAway,
    Supervision,
)
from tests.eventually import eventually

WANTED = WantedDaemon(
    claim=Reference(namespace="default", name="train", uid="train"),
    devices=(MpsDevice(uuid="GPU-0", memory_mib=1024),),
    thread_percentage=10,
)
READY = MpsDaemon(wanted=WANTED, state="ready")


def report(generation: int, *daemons: MpsDaemon) -> SharingReport:
    return SharingReport(
        generation=generation, time=1.0, daemons=daemons, offers=Offers(no_mps=None)
    )


def answer(supervision: Supervision) -> SharingAnswer:
    return supervision.answer


def connected() -> Supervision:
    """With all changes told, in the generation 1."""
    supervision = Supervision()
    supervision.heard(report(0))
    supervision.told(supervision.changes, 1)
    return supervision


def test_without_a_connection_it_is_away() -> None:
    assert answer(Supervision()) == SharingAway()
    supervision = connected()
    supervision.heard(None)
    assert answer(supervision) == SharingAway()


def test_a_report_of_what_was_told_before_is_no_answer() -> None:
    supervision = connected()
    supervision.heard(report(0, READY))
    assert answer(supervision) == NotAnswered()
    supervision.heard(report(1, READY))
    assert answer(supervision) == Answered({"train": READY}, None)


def test_a_change_that_was_not_told_has_no_answer() -> None:
    supervision = connected()
    supervision.heard(report(1, READY))
    supervision.changed()
    assert answer(supervision) == NotAnswered()
    supervision.told(supervision.changes, 2)
    assert answer(supervision) == NotAnswered()
    supervision.heard(report(2))
    assert answer(supervision) == Answered({}, None)


def test_a_change_that_comes_while_another_is_told_has_no_answer() -> None:
    supervision = connected()
    before = supervision.changes
    supervision.changed()
    supervision.told(before, 2)
    supervision.heard(report(2))
    assert answer(supervision) == NotAnswered()


def test_after_a_new_connection_everything_is_told_again() -> None:
    supervision = connected()
    supervision.heard(report(1, READY))
    supervision.heard(None)
    supervision.heard(report(1, READY))
    assert answer(supervision) == NotAnswered()


def test_a_change_wakes_who_tells_it() -> None:
    supervision, woken = Supervision(), threading.Event()
    supervision.attend(woken.set)
    supervision.changed()
    assert woken.is_set()


def hear(supervision: Supervision) -> None:
    supervision.heard(report(1, READY))


def tell(supervision: Supervision) -> None:
    """What was reported is the answer to what is told now, which changes nothing."""
    supervision.told(supervision.changes, 1)


@pytest.mark.parametrize("before_last", [(), (hear, Supervision.changed)], ids=["heard", "told"])
def test_who_waits_goes_on_with_the_answer(
    before_last: Sequence[Callable[[Supervision], None]],
) -> None:
    supervision = connected()
    for step in before_last:
        step(supervision)
    found: list[object] = []

    def wait() -> None:
        found.append(supervision.wait(lambda now: isinstance(now, Answered), 600))

    threading.Thread(target=wait, daemon=True).start()
    (tell if before_last else hear)(supervision)
    eventually(lambda: found == [Answered({"train": READY}, None)])


def test_who_waits_in_vain_gets_the_last_answer() -> None:
    assert connected().wait(lambda _: False, 0.01) == NotAnswered()
