"""Messages between the kubelet plugin and carina-sharing, as they are on the socket and on disk."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from carina_dra.sharing.message import (
    MessageError,
    MpsDaemon,
    MpsDevice,
    Reference,
    ShareUse,
    SharingReport,
    WantedDaemon,
    WantedShare,
    WantedShares,
)

CLAIM = Reference(namespace="team", name="train", uid="c")
SHARE = WantedShare(claim=CLAIM, gpu="GPU-0", memory_mib=1024, cores=10)
LINE = (
    b'{"version":1,"generation":7,"shares":[{"claim":{"namespace":"team","name":"train","uid":"c"},'
    b'"gpu":"GPU-0","memory_mib":1024,"cores":10,"pods":[]}],"daemons":[]}\n'
)
DAEMON = WantedDaemon(
    claim=CLAIM, devices=(MpsDevice(uuid="GPU-0", memory_mib=1024),), thread_percentage=None
)
USE: dict[str, Any] = {
    "gpu": "GPU-0",
    "claims": ["c"],
    "given_mib": 1,
    "given_cores": 1,
    "used_mib": 0,
    "pods": [],
    "idle_since": None,
    "exceeded_since": None,
}


def wanted(**share: Any) -> bytes:
    """The message with other fields of its share."""
    content = json.loads(LINE)
    content["shares"][0] |= share
    return json.dumps(content).encode()


def test_a_message_is_a_json_object_in_a_line() -> None:
    message = WantedShares(generation=7, shares=(SHARE,), daemons=())
    assert message.line() == LINE
    assert WantedShares.parse(LINE) == message


def test_a_plugin_that_knows_no_mps_daemons_leaves_them_as_they_are() -> None:
    said = json.loads(LINE)
    del said["daemons"]
    silent = WantedShares.parse(json.dumps(said).encode())
    before = silent.model_copy(update={"daemons": (DAEMON,), "shares": ()})

    assert silent.after(before) == silent.model_copy(update={"daemons": (DAEMON,)})
    none = silent.model_copy(update={"daemons": ()})
    assert none.after(before) == none
    assert silent.after(None) == silent


def test_fields_of_a_newer_version_are_ignored() -> None:
    assert WantedShares.parse(wanted(colour="red")) == WantedShares.parse(LINE)


@pytest.mark.parametrize(
    ("share", "field"),
    [
        ({"memory_mib": 0}, "shares.0.memory_mib"),
        ({"cores": 0}, "shares.0.cores"),
        ({"cores": 101}, "shares.0.cores"),
        ({"memory_mib": "7"}, "shares.0.memory_mib"),
        ({"gpu": 7}, "shares.0.gpu"),
        ({"claim": None}, "shares.0.claim"),
        ({"memory_mib": 0, "cores": 0}, "shares.0.memory_mib"),
    ],
)
def test_what_is_no_share_is_refused_by_its_field(share: dict[str, Any], field: str) -> None:
    with pytest.raises(MessageError, match=rf"^WantedShares: {field}: "):
        WantedShares.parse(wanted(**share))


@pytest.mark.parametrize(
    "share",
    [{"memory_mib": 1}, {"cores": 1}, {"cores": 100}],
)
def test_the_least_and_the_most_of_a_share(share: dict[str, Any]) -> None:
    (found,) = WantedShares.parse(wanted(**share)).shares
    assert share.items() <= found.model_dump().items()


def with_daemon(percentage: int | None, *memory_mib: int | None) -> bytes:
    """The message with a daemon, which has devices with these limits."""
    daemon = {
        "claim": CLAIM.model_dump(),
        "devices": [{"uuid": "GPU-0", "memory_mib": mib} for mib in memory_mib],
        "thread_percentage": percentage,
    }
    return json.dumps(json.loads(LINE) | {"daemons": [daemon]}).encode()


@pytest.mark.parametrize(
    ("line", "field"),
    [
        (with_daemon(None), "daemons.0.devices"),
        (with_daemon(None, 0), "daemons.0.devices.0.memory_mib"),
        (with_daemon(0, 1), "daemons.0.thread_percentage"),
        (with_daemon(101, 1), "daemons.0.thread_percentage"),
    ],
)
def test_what_is_no_daemon_is_refused_by_its_field(line: bytes, field: str) -> None:
    with pytest.raises(MessageError, match=rf"^WantedShares: {field}: "):
        WantedShares.parse(line)


@pytest.mark.parametrize("limits", [(None, None), (1, 1), (100, 1)])
def test_the_least_and_the_most_of_a_daemon(limits: tuple[int | None, int | None]) -> None:
    (daemon,) = WantedShares.parse(with_daemon(*limits)).daemons or ()
    assert (daemon.thread_percentage, daemon.devices[0].memory_mib) == limits


@pytest.mark.parametrize("time", ["-0.001", "253402300800", "NaN", "Infinity", "1e999"])
def test_a_time_that_no_date_can_say_is_refused(time: str) -> None:
    """A date has a year of four digits."""
    with pytest.raises(MessageError, match=r"^SharingReport: time: "):
        SharingReport.parse(f'{{"generation":1,"time":{time}}}'.encode())


@pytest.mark.parametrize("time", [0, 253402300799.5])
def test_the_first_and_the_last_time(time: float) -> None:
    assert SharingReport.parse(f'{{"generation":1,"time":{time}}}'.encode()).time == time


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"[", "WantedShares: the line: "),
        (b'{"version":2,"generation":1,"shares":[]}', "WantedShares: version: "),
        (b'{"generation":-1,"shares":[]}', "WantedShares: generation: "),
        (b'{"generation":1}', "WantedShares: shares: "),
    ],
)
def test_what_is_no_message_is_refused_by_its_field(line: bytes, problem: str) -> None:
    with pytest.raises(MessageError, match=f"^{problem}"):
        WantedShares.parse(line)


def test_before_anything_changed_the_generation_is_0() -> None:
    assert WantedShares.parse(b'{"generation":0,"shares":[]}').shares == ()


def test_a_report_may_say_nothing_and_a_use_not_how_many_times_it_was_exceeded() -> None:
    empty = SharingReport.parse(b'{"generation":1,"time":2.5}')
    assert (empty.uses, empty.strangers, empty.unwatched) == ((), (), ())
    use = ShareUse.model_validate_json(json.dumps(USE))
    assert use.exceeded == 0


def test_an_earlier_version_says_nothing_of_ended_processes() -> None:
    use = ShareUse.model_validate_json(json.dumps(USE))
    assert (use.ended, use.last_ended) == (0, None)


def test_an_earlier_version_offers_nothing_and_knows_no_process_without_memory() -> None:
    pod = {"pod": CLAIM.model_dump(), "memory_mib": 1, "sm_percent": None, "processes": 1}
    said = {
        "generation": 1,
        "time": 2.5,
        "uses": [USE | {"pods": [pod]}],
        "strangers": [{"gpu": "GPU-0", "processes": 1, "memory_mib": 1}],
    }
    report = SharingReport.parse(json.dumps(said).encode())
    assert (report.uses[0].pods[0].unmeasured, report.strangers[0].unmeasured) == (0, 0)
    assert not report.offers.ends_violators
    assert report.offers.no_mps == "this version of carina-sharing runs no MPS daemons"


def test_a_daemon_of_which_nothing_else_is_said_was_started_once() -> None:
    daemon = MpsDaemon.model_validate({"wanted": DAEMON, "state": "ready"})
    assert (daemon.reason, daemon.restarts) == ("", 0)


def test_why_a_process_was_ended_may_be_a_word_of_a_later_version() -> None:
    ended = {
        "pod": {"namespace": "team", "name": "train", "uid": "p"},
        "container_id": None,
        "memory_mib": 300,
        "time": 2.5,
        "why": "a later word",
    }
    use = ShareUse.model_validate_json(json.dumps(USE | {"ended": 1, "last_ended": ended}))
    assert use.last_ended is not None
    assert use.last_ended.why == "a later word"


def test_a_message_does_not_change() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        SHARE.memory_mib = 1
