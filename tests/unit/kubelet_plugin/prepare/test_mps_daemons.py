"""What is waited for until a claim's MPS daemon is ready, and until it has ended."""

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest

from carina_dra.sharing.message import (
    MpsDaemon,
    MpsDevice,
    Offers,
    Reference,
    SharingReport,
    WantedDaemon,
)
from kubelet_plugin.prepare.daemon_records import DaemonRecords
from kubelet_plugin.prepare.mps_daemons import MpsDaemons
from kubelet_plugin.prepare.resource import (
    Identity,
    LeftBehindError,
    MpsControlDaemon,
    ResourceError,
    daemon_identity,
)
from kubelet_plugin.sharing.supervision import SharingAnswer, Supervision


def wanted(memory_mib: int = 1000) -> WantedDaemon:
    return WantedDaemon(
        claim=Reference(namespace="default", name="a", uid="uid-a"),
        devices=(MpsDevice(uuid="GPU-a", memory_mib=memory_mib),),
        thread_percentage=10,
    )


WANTED, OTHER = wanted(), wanted(2000)
READY = MpsDaemon(wanted=WANTED, state="ready")
STARTING = MpsDaemon(wanted=WANTED, state="starting")
FAILED = MpsDaemon(wanted=WANTED, state="failed", reason="no memory")


class Waiting(Supervision):
    """A supervision in which carina-sharing goes on each time that somebody looks in vain."""

    def __init__(self, *steps: Callable[["Waiting"], None]) -> None:
        super().__init__()
        self.steps = list(steps)
        self.generation = 0
        self.asked: list[float] = []
        """For how long it was waited."""

    def wait(self, decided: Callable[[SharingAnswer], bool], seconds: float) -> SharingAnswer:
        self.asked.append(seconds)
        while not decided(self.answer) and self.steps:
            self.steps.pop(0)(self)
        return self.answer

    def say(self, *daemons: MpsDaemon, no_mps: str | None = None) -> None:
        self.generation += 1
        self.told(self.changes, self.generation)
        self.heard(
            SharingReport(
                generation=self.generation,
                time=1.0,
                daemons=daemons,
                offers=Offers(no_mps=no_mps),
            )
        )


def says(*daemons: MpsDaemon, no_mps: str | None = None) -> Callable[[Waiting], None]:
    return lambda supervision: supervision.say(*daemons, no_mps=no_mps)


def goes_away(supervision: Waiting) -> None:
    supervision.heard(None)


def is_silent(supervision: Waiting) -> None:
    supervision.heard(SharingReport(generation=0, time=1.0))


class Port:
    """The port on a node."""

    def __init__(self, folder: Path) -> None:
        self.records = DaemonRecords(folder / "records", "boot")
        self.folders = folder / "mps"

    def make(self, supervision: Supervision, daemon: WantedDaemon = WANTED) -> None:
        MpsDaemons(self.records, self.folders, supervision).make(MpsControlDaemon(daemon))

    def refused(self, supervision: Supervision, daemon: WantedDaemon = WANTED) -> str:
        with pytest.raises(ResourceError) as caught:
            self.make(supervision, daemon)
        return str(caught.value)

    def remove(self, supervision: Supervision) -> None:
        MpsDaemons(self.records, self.folders, supervision).remove(daemon_identity("uid-a"))

    def is_ready(self) -> bool:
        record = self.records.read("uid-a")
        return record is not None and record.ready


@pytest.fixture
def port(tmp_path: Path) -> Port:
    return Port(tmp_path)


# --- until it is ready ---


@pytest.mark.parametrize(
    "steps",
    [
        (says(READY),),
        (says(), says(READY)),
        (says(STARTING), says(READY)),
        (is_silent, says(READY)),
        (says(MpsDaemon(wanted=OTHER, state="ready")), says(READY)),
        (says(MpsDaemon(wanted=OTHER, state="failed", reason="of before")), says(READY)),
    ],
    ids=["at once", "not yet there", "starting", "silent", "other limits", "other limits fail"],
)
def test_it_is_waited_for_until_it_is_ready(
    port: Port, steps: tuple[Callable[[Waiting], None], ...]
) -> None:
    supervision = Waiting(*steps)
    port.make(supervision)
    assert supervision.steps == []
    assert port.is_ready()


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        ((), "carina-sharing does not run"),
        ((is_silent,), "carina-sharing does not answer"),
        ((says(),), "it has not been started"),
        ((says(STARTING),), "it has not started within 4 s"),
        ((says(MpsDaemon(wanted=OTHER, state="ready")),), "it has not started within 4 s"),
    ],
)
def test_one_that_is_not_ready_in_time_is_refused_with_the_reason(
    port: Port, steps: tuple[Callable[[Waiting], None], ...], reason: str
) -> None:
    assert reason in port.refused(Waiting(*steps))
    assert not port.is_ready()


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (says(FAILED), "no memory"),
        (says(no_mps="no NVIDIA driver is loaded"), "no NVIDIA driver is loaded"),
        (says(READY, no_mps="no NVIDIA driver is loaded"), "no NVIDIA driver is loaded"),
    ],
)
def test_one_that_will_not_be_ready_is_refused_at_once(
    port: Port, step: Callable[[Waiting], None], reason: str
) -> None:
    supervision = Waiting(step, says(READY))
    assert reason in port.refused(supervision)
    assert len(supervision.steps) == 1


def test_a_daemons_answer_has_no_control_characters_for_the_terminals_of_operators(
    port: Port,
) -> None:
    said = MpsDaemon(wanted=WANTED, state="failed", reason="it said \x1b[2J")
    assert "it said ?[2J;" in port.refused(Waiting(says(said)))


def test_it_is_not_waited_long_for_carina_sharing_itself(port: Port) -> None:
    supervision = Waiting()
    port.refused(supervision)
    assert supervision.asked == [2.0]


def test_after_a_wait_in_vain_the_other_claims_of_the_gpu_do_not_wait_as_long_again(
    port: Port,
) -> None:
    supervision = Waiting(says(STARTING))
    calls = MpsDaemons(port.records, port.folders, supervision)

    def waits() -> list[float]:
        supervision.asked = []
        with contextlib.suppress(ResourceError):
            calls.make(MpsControlDaemon(WANTED, starts=True))
        return supervision.asked

    assert waits() == [2.0, 4.0]
    assert waits() == [0.5, 0.5]
    supervision.say(READY)
    assert waits() == [0.5, 0.5]
    supervision.say(STARTING)  # it died, and is started again
    assert waits() == [2.0, 4.0]


@pytest.mark.parametrize("remove", [MpsDaemons.remove, MpsDaemons.remove_leftover])
def test_a_daemon_that_was_removed_is_waited_for_as_a_new_one(
    port: Port, remove: Callable[[MpsDaemons, Identity], None]
) -> None:
    supervision = Waiting(says(STARTING))
    calls = MpsDaemons(port.records, port.folders, supervision)
    with pytest.raises(ResourceError):
        calls.make(MpsControlDaemon(WANTED))
    remove(calls, daemon_identity("uid-a"))
    supervision.asked = []
    with pytest.raises(ResourceError):
        calls.make(MpsControlDaemon(WANTED))
    assert supervision.asked[0] == 2.0


def test_other_limits_are_waited_for_as_those_of_a_new_daemon(port: Port) -> None:
    supervision = Waiting(says(STARTING))
    calls = MpsDaemons(port.records, port.folders, supervision)
    for daemon in (WANTED, OTHER):
        supervision.asked = []
        with pytest.raises(ResourceError):
            calls.make(MpsControlDaemon(daemon))
        assert supervision.asked[0] == 2.0


def test_who_goes_away_while_it_is_waited_for_is_not_waited_for_longer(port: Port) -> None:
    supervision = Waiting(says(STARTING), goes_away, says(READY))
    assert "does not run" in port.refused(supervision)


def test_other_limits_are_recorded_and_waited_for(port: Port) -> None:
    port.make(Waiting(says(READY)))
    supervision = Waiting(says(READY), says(MpsDaemon(wanted=OTHER, state="ready")))
    port.make(supervision, OTHER)
    assert port.records.wanted() == (OTHER,)
    assert supervision.steps == []


def test_a_daemon_that_was_ready_and_fails_is_refused_with_a_reason(port: Port) -> None:
    port.make(Waiting(says(READY)))
    supervision = Waiting()
    supervision.say(FAILED.model_copy(update={"reason": ""}))
    assert "it fails" in port.refused(supervision)


# --- until it has ended ---


@pytest.mark.parametrize(
    "steps",
    [(is_silent, says(READY), says()), (says(STARTING), goes_away)],
    ids=["has ended", "carina-sharing is gone"],
)
def test_its_end_is_waited_for(port: Port, steps: tuple[Callable[[Waiting], None], ...]) -> None:
    port.make(Waiting(says(READY)))
    first = Waiting(*steps)
    is_silent(first)
    port.remove(first)
    assert first.steps == []


@pytest.mark.parametrize(
    ("step", "why"),
    [
        (goes_away, "carina-sharing does not run"),
        (is_silent, "carina-sharing does not answer"),
        (says(READY), "carina-sharing is ending it"),
        (says(), "carina-sharing is ending it"),
        (says(FAILED), "no memory"),
    ],
)
def test_one_whose_folder_is_left_has_not_ended(
    port: Port, step: Callable[[Waiting], None], why: str
) -> None:
    (port.folders / "uid-a").mkdir(parents=True)
    supervision = Waiting()
    step(supervision)
    with pytest.raises(LeftBehindError, match=why):
        port.remove(supervision)


def test_one_without_a_record_is_not_waited_for(port: Port) -> None:
    supervision = Waiting(says())
    port.remove(supervision)
    assert supervision.asked == []


def test_a_file_among_the_folders_of_daemons_is_none(port: Port) -> None:
    """It must not keep the node from being released."""
    (port.folders / "uid-a").mkdir(parents=True)
    (port.folders / "notes.txt").touch()
    daemons = MpsDaemons(port.records, port.folders, Waiting())
    assert daemons.left() == ("uid-a",)
    assert daemons.observe() == {daemon_identity("uid-a")}
