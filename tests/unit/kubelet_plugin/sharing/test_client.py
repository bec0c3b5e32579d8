"""The client of carina-sharing, against a server that behaves in all ways."""

import logging
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import pytest

from carina_dra.kube.api_resource import RESOURCE_CLAIMS
from carina_dra.kube.backoff import Backoff
from carina_dra.kube.body import Body
from carina_dra.kube.errors import ApiError, ApiOperation, NotFound, Unreachable
from carina_dra.sharing.message import (
    MOST_BYTES,
    MpsDaemon,
    MpsDevice,
    Offers,
    Reference,
    ShareUse,
    SharingReport,
    Strangers,
    WantedDaemon,
)
from kubelet_plugin.claims.checkpoint import Checkpoint
from kubelet_plugin.claims.claim import ClaimReference, NodeClaim
from kubelet_plugin.claims.failure import ClaimError, NodeResourceFailed
from kubelet_plugin.claims.lock import FileLock
from kubelet_plugin.claims.resource_failure import file_failure
from kubelet_plugin.inventory.share_guard import ShareGuard
from kubelet_plugin.sharing.claim_pods import ClaimPods
from kubelet_plugin.sharing.client import SharingClient
from kubelet_plugin.sharing.guards import ShareGuards
from kubelet_plugin.sharing.standing import ShareExceeded, Standings, WithinShare
from kubelet_plugin.sharing.supervision import (
    Answered,
    NotAnswered,
    SharingAway,
    Supervision,
)
from tests.eventually import eventually
from tests.samples.claims import allocated_share
from tests.unit.kubelet_plugin.sharing.sharing_server import SharingServer

AWAY = Unreachable(ApiOperation.on("get", RESOURCE_CLAIMS), "no answer")


def shared(name: str, memory: str = "1Gi", *, template: bool = False) -> NodeClaim:
    devices = (allocated_share("gpu-0-share", share_id=name, memory=memory, cores=10),)
    pod_claim = "gpu" if template else None
    return NodeClaim(name, "default", name, devices, pod_claim=pod_claim)


@dataclass
class Node:
    """What plugins of a node share: the record of claims with its lock, the API, the socket."""

    folder: Path
    claims: dict[str, NodeClaim] = field(default_factory=dict)
    daemons: tuple[WantedDaemon, ...] = ()
    unreadable: ClaimError | None = None
    """Why the record of daemons cannot be read."""
    pods: dict[str, list[str]] = field(default_factory=dict)
    uids: dict[str, str] = field(default_factory=dict)
    """Of claims whose UID is not their name."""
    reads: list[str] = field(default_factory=list)
    failing: ApiError | None = None
    servers: list[SharingServer] = field(default_factory=list)
    plugins: list["Plugin"] = field(default_factory=list)

    @property
    def socket(self) -> Path:
        return self.folder / "sharing.sock"

    def lock(self) -> FileLock:
        return FileLock(self.folder / "lock", clock=time.monotonic, pause=time.sleep)

    def record(self, *claims: NodeClaim) -> None:
        """A prepare or an unprepare: changes the record under its lock."""
        with self.lock().held(time.monotonic() + 10):
            self.claims = {claim.uid: claim for claim in claims}

    def server(self, *, reads: bool = True) -> SharingServer:
        self.servers.append(SharingServer(self.socket, reads=reads))
        return self.servers[-1]

    def plugin(self, *, knows_gpus: bool = True) -> "Plugin":
        self.plugins.append(Plugin(self, {"gpu-0": "GPU-0"} if knows_gpus else None))
        return self.plugins[-1]

    def read(self, claim: ClaimReference) -> Body:
        self.reads.append(claim.name)
        if self.failing:
            raise self.failing
        users = [
            {"resource": "pods", "name": name, "uid": name}
            for name in self.pods.get(claim.name, [])
        ]
        uid = self.uids.get(claim.name, claim.uid)
        metadata = {"namespace": claim.namespace, "name": claim.name, "uid": uid}
        return {"metadata": metadata, "spec": {}, "status": {"reservedFor": users}}


class Waits(Backoff):
    """Short pauses between two connections, and how often they begin anew."""

    def __init__(self) -> None:
        super().__init__(initial=0.01, cap=0.05)
        self.resets = 0
        self.waits = 0

    def reset(self) -> None:
        self.resets += 1
        super().reset()

    def next(self) -> float:
        self.waits += 1
        return super().next()


class Plugin:
    """One plugin process of the node."""

    def __init__(self, node: Node, gpus: dict[str, str] | None) -> None:
        self._node = node
        self.view = node.claims
        """The record as this process last saw it."""
        self.gpus = gpus
        self.seen: list[Standings] = []
        self.connected: list[bool] = []
        self.offered: list[ShareGuard] = []
        self.seconds = 0.0
        """How far its monotonic clock is ahead."""
        self.now: Callable[[], float] = time.time
        quick = Backoff(initial=0.01, cap=0.05)
        self.waits = Waits()
        self.repairs = 0
        self.reads = 0
        """How many times it has looked at its claims."""
        self.pods = ClaimPods(
            node.read,
            joined=self._joined,
            clock=self.clock,
            backoff=quick,
        )
        self.guards = ShareGuards(changed=self._guards_changed, clock=self.clock)
        self.supervision = Supervision()
        self.client = SharingClient(
            node.socket,
            record=self._record,
            claims=self._claims,
            gpus=lambda: self.gpus,
            pods=self.pods,
            daemons=self._daemons,
            guards=self.guards,
            supervision=self.supervision,
            seen=self.seen.append,
            reporter=self,
            clock=self.clock,
            now=self._time,
            backoff=self.waits,
        )
        self.client.start()

    def _joined(self) -> None:
        self.repairs += 1

    def _guards_changed(self) -> None:
        self.offered.append(self.guards.of("GPU-0"))

    def _claims(self) -> Collection[NodeClaim]:
        self.reads += 1
        return self.view.values()

    def _daemons(self) -> tuple[WantedDaemon, ...]:
        if self._node.unreadable is not None:
            raise self._node.unreadable
        return self._node.daemons

    def _time(self) -> float:
        return self.now()

    def clock(self) -> float:
        return time.monotonic() + self.seconds

    def look(self) -> None:
        """It notices a change of the record."""
        self.view = self._node.claims
        self.client.look()

    def sharing_connected(self, connected: bool) -> None:
        self.connected.append(connected)

    @contextmanager
    def _record(self) -> Iterator[Checkpoint]:
        with self._node.lock().held(time.monotonic() + 10):
            self.view = self._node.claims
            yield Checkpoint("boot", self._node.claims)


def report(
    *claims: str, used: int = 0, since: float | None = None, strangers: int = 0, at: float = 1.0
) -> SharingReport:
    use = ShareUse(
        gpu="GPU-0",
        claims=claims,
        given_mib=1024,
        given_cores=10,
        used_mib=used,
        pods=(),
        idle_since=None,
        exceeded_since=since,
    )
    others = (Strangers(gpu="GPU-0", processes=strangers, memory_mib=1),) if strangers else ()
    return SharingReport(generation=1, time=at, uses=(use,), strangers=others)


def names(server: SharingServer) -> list[str]:
    """The claims that the server was told last."""
    return [share.claim.name for share in server.told[-1].shares] if server.told else ["?"]


@pytest.fixture
def node() -> Iterator[Node]:
    with tempfile.TemporaryDirectory(prefix="s") as folder:  # short: sockets' paths have limits
        node = Node(Path(folder))
        yield node
        for plugin in node.plugins:
            plugin.client.stop()
        for server in node.servers:
            server.close()


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


@pytest.mark.parametrize("template", [False, True], ids=["of a user", "said to be of a template"])
def test_a_second_pod_of_a_claim_is_found_when_strangers_compute(
    node: Node, template: bool
) -> None:
    node.record(shared("a", template=template), shared("b"))
    node.pods = {"a": ["first"], "b": ["other"]}
    server, plugin = node.server(), node.plugin()
    eventually(lambda: names(server) == ["a", "b"])
    node.pods["a"] = ["first", "second"]

    server.say(report("a", "b", strangers=1))

    def pods() -> list[str]:
        return [pod.name for pod in server.told[-1].shares[0].pods]

    eventually(lambda: pods() == ["first", "second"])
    eventually(lambda: plugin.repairs == 1)
    assert plugin.pods.pods_of("a") == {"first", "second"}


def test_a_claim_of_several_pods_is_read_again_at_each_repair_until_one_is_left(node: Node) -> None:
    node.record(shared("a"))
    node.pods = {"a": ["first", "second"]}
    server, plugin = node.server(), node.plugin()
    eventually(lambda: names(server) == ["a"])
    node.pods["a"] = ["second"]

    assert plugin.pods.pods_of("a") == {"first", "second"}

    eventually(lambda: plugin.pods.pods_of("a") == {"second"})
    eventually(lambda: plugin.repairs == 2)
    reads = len(node.reads)
    assert plugin.pods.pods_of("a") == {"second"}
    assert not plugin.pods._asked
    assert len(node.reads) == reads


def test_a_claim_that_was_prepared_for_other_pods_is_read_again(node: Node) -> None:
    node.record(shared("a"))
    node.pods = {"a": ["first"]}
    server, plugin = node.server(), node.plugin()
    eventually(lambda: names(server) == ["a"])
    node.pods["a"] = ["second"]

    plugin.pods.prepared(replace(shared("a"), pods=("second",)))

    eventually(lambda: plugin.pods.pods_of("a") == {"second"})
    reads = len(node.reads)
    plugin.pods.prepared(replace(shared("a"), pods=("second",)))
    plugin.pods.prepared(shared("a"))
    assert not plugin.pods._asked
    assert len(node.reads) == reads


@pytest.mark.parametrize("again", [False, True], ids=["deleted", "created again"])
def test_the_pods_of_a_claim_that_was_deleted_stay_known(node: Node, again: bool) -> None:
    node.record(shared("a"))
    node.pods = {"a": ["first"]}
    server, plugin = node.server(), node.plugin()
    eventually(lambda: names(server) == ["a"])
    if again:
        node.uids["a"] = "another"
    else:
        node.failing = NotFound(ApiOperation.on("get", RESOURCE_CLAIMS), "it is gone")
    reads = len(node.reads)

    server.say(report("a", strangers=1))

    eventually(lambda: len(node.reads) > reads and not plugin.pods._asked)
    assert [pod.name for pod in plugin.pods.known["a"]] == ["first"]


def test_strangers_that_stay_are_asked_about_rarer_and_rarer(node: Node) -> None:
    node.record(shared("a"))
    server, plugin = node.server(), node.plugin()
    eventually(lambda: names(server) == ["a"])
    start = len(node.reads)
    for second in range(0, 3600, 10):
        plugin.seconds = float(second)
        seen = plugin.client.report
        server.say(report("a", strangers=1, at=float(second)))
        eventually(lambda seen=seen: plugin.client.report is not seen)  # type: ignore[misc]
    eventually(lambda: not plugin.pods._asked)
    assert 5 <= len(node.reads) - start <= 16


def test_the_first_message_waits_for_the_pods_but_not_for_ever(node: Node) -> None:
    node.record(shared("a"))
    node.failing = AWAY
    server, plugin = node.server(), node.plugin()
    eventually(lambda: len(node.reads) > 3)
    assert not server.told
    plugin.seconds = 6.0
    eventually(lambda: names(server) == ["a"])
    node.pods["a"] = ["pod"]
    node.failing = None
    eventually(lambda: bool(server.told[-1].shares[0].pods))


def test_a_claim_that_cannot_be_read_keeps_no_other_from_being_read(node: Node) -> None:
    node.record(shared("a"), shared("b"))
    read = node.read

    def failing(claim: ClaimReference) -> Body:
        if claim.name == "a":
            raise AWAY
        return read(claim)

    node.pods["b"] = ["pod"]
    node.read = failing  # type: ignore[method-assign]
    node.server()
    plugin = node.plugin()
    eventually(lambda: "b" in plugin.pods.known)


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
