"""The client of carina-sharing, against a server that behaves in all ways."""

import logging
import threading
import time
from itertools import pairwise

import pytest

from carina_dra.sharing.message import (
    MOST_BYTES,
    MpsDaemon,
    MpsDevice,
    Offers,
    Reference,
    SharingReport,
    WantedDaemon,
)
from kubelet_plugin.claims.failure import ClaimError, NodeResourceFailed
from kubelet_plugin.claims.resource_failure import file_failure
from kubelet_plugin.inventory.share_guard import ShareGuard
from kubelet_plugin.sharing.standing import ShareExceeded, WithinShare
from kubelet_plugin.sharing.supervision import Answered, NotAnswered, SharingAway
from tests.eventually import eventually
from tests.unit.kubelet_plugin.sharing.client_node import Node, names, report, shared


def test_it_tells_the_shares_when_it_connects_and_whenever_they_change(node: Node) -> None:
    node.record(shared("a"))
    node.pods["a"] = ["pod-a"]
    server, plugin = node.server(), node.plugin()
    eventually(lambda: names(server) == ["a"])
    (share,) = server.told[0].shares
    assert [pod.name for pod in share.pods] == ["pod-a"]

    node.record(shared("a"), shared("b"))
    plugin.look()
    eventually(lambda: names(server) == ["a", "b"])
    node.record()
    plugin.look()
    eventually(lambda: names(server) == [])

    generations = [told.generation for told in server.told]
    assert generations == sorted(set(generations))


def test_what_is_told_already_is_not_told_again(node: Node) -> None:
    node.record(shared("a"))
    server, plugin = node.server(), node.plugin()
    eventually(lambda: names(server) == ["a"])
    plugin.look()
    node.record(shared("a"), shared("b"))
    plugin.look()
    eventually(lambda: names(server) == ["a", "b"])
    assert all(earlier.shares != later.shares for earlier, later in pairwise(server.told))


def test_the_shares_of_a_gpu_that_came_are_told_although_nobody_says_so(node: Node) -> None:
    node.record(shared("a"))
    server, plugin = node.server(), node.plugin()
    plugin.gpus = {}
    plugin.look()
    eventually(lambda: names(server) == [])
    plugin.gpus = {"gpu-0": "GPU-0"}
    plugin.seconds = 11.0
    eventually(lambda: names(server) == ["a"])


def test_a_report_does_not_make_it_read_the_claims_again(node: Node) -> None:
    node.record(shared("a"))
    server, plugin = node.server(), node.plugin()
    eventually(lambda: names(server) == ["a"])

    def hear(at: float) -> None:
        server.say(report("a", at=at))
        eventually(lambda: getattr(plugin.client.report, "time", None) == at)

    hear(1.0)
    reads = plugin.reads
    for second in range(2, 12):
        hear(float(second))
    assert plugin.reads <= reads + 1, "the pods of claims may have come to be known meanwhile"


def test_before_the_gpus_were_read_nothing_is_told(node: Node) -> None:
    node.record(shared("a"))
    server, plugin = node.server(), node.plugin(knows_gpus=False)
    eventually(lambda: plugin.reads > 1)
    plugin.gpus = {}
    plugin.look()
    eventually(lambda: names(server) == [])
    assert len(server.told) == server.accepted == 1


def test_gpus_that_cannot_be_read_for_a_while_change_nothing(node: Node) -> None:
    node.record(shared("a"))
    server, plugin = node.server(), node.plugin()
    eventually(lambda: names(server) == ["a"])
    gpus = plugin.gpus
    for found in (None, gpus):
        plugin.gpus = found
        reads = plugin.reads
        plugin.look()
        eventually(lambda reads=reads: plugin.reads > reads)  # type: ignore[misc]
    node.record()
    plugin.look()
    eventually(lambda: names(server) == [])
    assert [len(told.shares) for told in server.told] == [1, 0]


def test_a_record_that_cannot_be_read_is_tried_again_in_the_same_connection(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    damage = file_failure("the record", "read", OSError(5, "I/O error"), "check the disk")
    node.unreadable = ClaimError(NodeResourceFailed(None, damage))
    node.record(shared("a"))
    server, plugin = node.server(), node.plugin()
    eventually(lambda: any("cannot be told the shares" in line for line in caplog.messages))
    assert not server.told
    node.unreadable = None
    plugin.look()
    eventually(lambda: names(server) == ["a"])

    caplog.clear()
    node.unreadable = ClaimError(NodeResourceFailed(None, damage))
    plugin.look()
    eventually(lambda: any("cannot be told the shares" in line for line in caplog.messages))
    node.unreadable = None
    reads = plugin.reads
    plugin.look()
    eventually(lambda: plugin.reads > reads)
    node.record()
    plugin.look()
    eventually(lambda: names(server) == [])
    assert [len(told.shares) for told in server.told] == [1, 0], "nothing is told twice"
    assert server.accepted == 1


def test_an_error_of_its_own_does_not_end_it(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    def fails() -> float:
        raise RuntimeError("a bug")

    node.record(shared("a"))
    server, plugin = node.server(), node.plugin(knows_gpus=False)
    plugin.now = fails
    plugin.gpus = {"gpu-0": "GPU-0"}
    eventually(lambda: any("cannot be talked to" in line for line in caplog.messages))
    plugin.now = time.time
    eventually(lambda: names(server) == ["a"])


def test_it_waits_between_connections_and_longer_until_it_hears_a_report(node: Node) -> None:
    plugin = node.plugin()
    eventually(lambda: plugin.waits.waits > 3)
    assert plugin.waits.resets == 0
    node.server()
    eventually(lambda: plugin.waits.resets > 0)


def test_its_threads_end(node: Node) -> None:
    before = set(threading.enumerate())
    plugin = node.plugin()
    started = set(threading.enumerate()) - before
    assert {thread.name for thread in started} == {"sharing", "claim-pods"}
    assert all(thread.daemon for thread in started), "else the process does not end"
    plugin.client.stop()
    eventually(lambda: not any(thread.is_alive() for thread in started))


def test_that_nobody_listens_is_logged_once(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    plugin = node.plugin()
    eventually(lambda: plugin.connected.count(False) > 5)

    assert True not in plugin.connected
    (line,) = [record for record in caplog.records if "does not run" in record.message]
    assert line.levelname == "INFO"


def test_that_it_comes_and_goes_is_logged_each_time(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    first, plugin = node.server(), node.plugin()
    eventually(lambda: plugin.client.report is not None)
    first.close()
    eventually(lambda: plugin.connected.count(False) > 3)
    second = node.server()
    eventually(lambda: plugin.client.report is not None)
    second.close()

    def told() -> list[str]:
        return [record.message.partition(" on this node")[0] for record in caplog.records]

    away = "carina-sharing does not run"
    eventually(lambda: told().count(away) == 2)
    assert [line for line in told() if "retrying" not in line] == [
        away,
        "carina-sharing is there",
        away,
    ]


def test_a_connection_that_breaks_again_is_logged_again(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    server = node.server()
    node.plugin()
    for times in (1, 2):
        eventually(lambda times=times: server.accepted == times)  # type: ignore[misc]
        server.drop()
        eventually(
            lambda times=times: (
                caplog.messages  # type: ignore[misc]
                == ["no connection to carina-sharing; retrying"] * times
            )
        )


def test_that_shares_are_not_watched_is_known_after_a_while(node: Node) -> None:
    plugin = node.plugin()
    eventually(lambda: plugin.connected.count(False) > 5)
    assert plugin.seen == []
    plugin.seconds = 61.0
    eventually(lambda: plugin.seen == [{}])
    away = plugin.connected.count(False)
    eventually(lambda: plugin.connected.count(False) > away + 3)
    assert plugin.seen == [{}], "it is said once"


def test_it_connects_again_after_a_kill_and_tells_everything(node: Node) -> None:
    node.record(shared("a"))
    first, plugin = node.server(), node.plugin()
    eventually(lambda: names(first) == ["a"])
    first.say(report("a", used=2000, since=1.0))
    eventually(lambda: plugin.client.report is not None)

    first.close()
    eventually(lambda: plugin.client.report is None)
    second = node.server()
    eventually(lambda: names(second) == ["a"])
    assert second.told[0].generation > first.told[-1].generation


def test_a_report_says_how_it_is_with_the_shares(node: Node) -> None:
    node.record(shared("a"), shared("b"))
    server, plugin = node.server(), node.plugin()
    eventually(lambda: names(server) == ["a", "b"])

    server.say(report("a", "b"))
    server.say(report("a", "b", used=2000, since=7.0, at=8.0))
    server.say(report("a", "b", used=3000, since=7.0, at=9.0))
    exceeded = ShareExceeded(7.0, 2000, 1024, 8.0)
    within, over = {}, {}
    for name in ("a", "b"):
        within[name, "GPU-0"], over[name, "GPU-0"] = WithinShare(), exceeded
    eventually(lambda: plugin.seen == [within, over])
    assert plugin.client.report is not None


def test_its_restart_changes_nothing_but_its_end_does(node: Node) -> None:
    node.record(shared("a"))
    server, plugin = node.server(), node.plugin()
    eventually(lambda: names(server) == ["a"])
    for second in (0, 25, 50, 75):
        plugin.seconds = float(second)
        server.say(report("a", at=float(second)))
        eventually(lambda at=second: getattr(plugin.client.report, "time", None) == at)  # type: ignore[misc]

    server.close()
    eventually(lambda: plugin.connected.count(False) > 3)
    plugin.seconds = 75.0 + 50.0
    away = plugin.connected.count(False)
    eventually(lambda: plugin.connected.count(False) > away + 1)
    assert len(plugin.seen) == 1
    plugin.seconds = 75.0 + 61.0
    eventually(lambda: plugin.seen[1:] == [{}])


@pytest.mark.parametrize(
    "line",
    [
        b"nonsense\n",
        b'{"version": 2, "generation": 1, "time": 1}\n',
        b'{"generation": 1, "time": 1, "uses": [{"gpu": 3}]}\n',
        b"\xff\xfe\n",
        b"[" * 100_000 + b"\n",
        b"x" * (MOST_BYTES + 100_000),
    ],
)
def test_what_is_no_report_ends_the_connection_and_is_logged(
    node: Node, caplog: pytest.LogCaptureFixture, line: bytes
) -> None:
    node.record(shared("a"))
    server, plugin = node.server(), node.plugin()
    eventually(lambda: names(server) == ["a"])
    threading.Thread(target=server.say, args=(line,), daemon=True).start()

    eventually(lambda: server.accepted > 1)
    eventually(lambda: len(server.told) > 1)
    assert any("retrying" in record.message for record in caplog.records)
    server.say(report("a"))
    eventually(lambda: len(plugin.seen) == 1)


def test_a_report_in_small_pieces_is_read(node: Node) -> None:
    node.record(shared("a"))
    server, plugin = node.server(), node.plugin()
    eventually(lambda: names(server) == ["a"])
    line = report("a").line()
    for start in range(0, len(line), 7):
        server.say(line[start : start + 7])
    eventually(lambda: len(plugin.seen) == 1)


def test_one_that_is_silent_is_connected_to_again(node: Node) -> None:
    node.record(shared("a"))
    server, plugin = node.server(), node.plugin()
    eventually(lambda: names(server) == ["a"])
    plugin.seconds = 31.0
    eventually(lambda: server.accepted > 1)


def test_one_that_does_not_read_holds_no_lock(node: Node) -> None:
    """A call of the kubelet needs the lock: whoever does not read must not be waited for."""
    pods = {f"claim-{number}": [f"pod-{n}" * 20 for n in range(100)] for number in range(60)}
    node.pods = pods
    node.record(*(shared(name) for name in pods))
    node.server(reads=False)
    plugin = node.plugin()
    eventually(lambda: plugin.pods.complete, within=30)
    claims = list(node.claims.values())

    def prepares() -> bool:
        """Prepares a claim; returns whether the plugin has given up."""
        claims.append(shared(f"new-{len(claims)}"))
        with node.lock().held(time.monotonic() + 1):
            node.claims = {claim.uid: claim for claim in claims}
        plugin.look()
        return False in plugin.connected

    eventually(prepares)


def test_of_two_plugins_the_one_that_tells_last_is_right(node: Node) -> None:
    """A rolling update: each notices changes of the other late, and both connect again."""
    server = node.server()
    old, new = node.plugin(), node.plugin()
    eventually(lambda: len(server.told) >= 2)
    for number in range(30):
        held = [shared(f"{n}") for n in range(number % 7)]
        node.record(*held)
        (new if number % 2 else old).look()
        if number % 5 == 0:
            server.drop()
    expected = sorted(node.claims)
    old.look()
    new.look()

    def latest() -> list[str]:
        last = max(server.told, key=lambda told: told.generation)
        return [share.claim.name for share in last.shares]

    eventually(lambda: latest() == expected)
    assert len({told.generation for told in server.told}) == len(server.told)


def test_a_clock_that_was_set_back_does_not_make_it_older(node: Node) -> None:
    node.record(shared("a"))
    server, plugin = node.server(), node.plugin()
    plugin.now = lambda: 5.0
    eventually(lambda: names(server) == ["a"])
    server.say(SharingReport(generation=10**18, time=1.0))
    eventually(lambda: plugin.client.report is not None)
    node.record(shared("b"))
    plugin.look()
    eventually(lambda: names(server) == ["b"])
    assert server.told[-1].generation > 10**18

    server.say(SharingReport(generation=1, time=2.0))  # it was sent before
    eventually(lambda: getattr(plugin.client.report, "time", None) == 2.0)
    node.record(shared("c"))
    plugin.look()
    eventually(lambda: names(server) == ["c"])
    assert server.told[-1].generation > server.told[-2].generation


DAEMON = WantedDaemon(
    claim=Reference(namespace="default", name="a", uid="a"),
    devices=(MpsDevice(uuid="GPU-0", memory_mib=1024),),
    thread_percentage=10,
)


def test_it_tells_the_daemons_when_their_record_changes_and_hears_of_them(node: Node) -> None:
    node.record(shared("a"))
    server, plugin = node.server(), node.plugin()
    eventually(lambda: names(server) == ["a"])
    assert server.told[-1].daemons == ()

    node.daemons = (DAEMON,)
    plugin.supervision.changed()
    eventually(lambda: server.told[-1].daemons == (DAEMON,))
    assert names(server) == ["a"]
    assert isinstance(plugin.supervision.answer, NotAnswered)

    ready = MpsDaemon(wanted=DAEMON, state="ready")
    server.say(SharingReport(generation=server.told[-1].generation, time=1.0, daemons=(ready,)))
    answer = plugin.supervision.wait(lambda answer: isinstance(answer, Answered), 10)
    assert isinstance(answer, Answered)
    assert answer.daemons == {"a": ready}

    server.close()
    away = plugin.supervision.wait(lambda answer: isinstance(answer, SharingAway), 10)
    assert isinstance(away, SharingAway)


def test_a_change_is_answered_also_if_it_changes_nothing(node: Node) -> None:
    """A record that was removed and is there again: it need not be told."""
    node.daemons = (DAEMON,)
    server, plugin = node.server(), node.plugin()
    eventually(lambda: bool(server.told))
    server.say(SharingReport(generation=server.told[-1].generation, time=1.0))
    plugin.supervision.changed()
    answer = plugin.supervision.wait(lambda answer: isinstance(answer, Answered), 10)
    assert isinstance(answer, Answered)
    assert len(server.told) == 1


def test_what_it_offers_stays_for_a_while_after_its_end(node: Node) -> None:
    server, plugin = node.server(), node.plugin()
    eventually(lambda: server.accepted > 0)
    server.say(SharingReport(generation=0, time=1.0, offers=Offers(no_mps=None)))
    eventually(lambda: plugin.offered[-1:] == [ShareGuard(mps=True)])

    server.close()
    eventually(lambda: plugin.connected.count(False) > 3)
    assert plugin.guards.of("GPU-0") == ShareGuard(mps=True)
    plugin.seconds = 61.0
    eventually(lambda: plugin.guards.of("GPU-0") == ShareGuard())
