"""A node with plugins whose clients talk to a stand-in for carina-sharing."""

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from carina_dra.kube.backoff import Backoff
from carina_dra.kube.body import Body
from carina_dra.kube.errors import ApiError
from carina_dra.sharing.message import ShareUse, SharingReport, Strangers, WantedDaemon
from kubelet_plugin.claims.checkpoint import Checkpoint
from kubelet_plugin.claims.claim import ClaimReference, NodeClaim
from kubelet_plugin.claims.failure import ClaimError
from kubelet_plugin.claims.lock import FileLock
from kubelet_plugin.inventory.share_guard import ShareGuard
from kubelet_plugin.sharing.claim_pods import ClaimPods
from kubelet_plugin.sharing.client import SharingClient
from kubelet_plugin.sharing.guards import ShareGuards
from kubelet_plugin.sharing.standing import Standings
from kubelet_plugin.sharing.supervision import Supervision
from tests.samples.claims import allocated_share
from tests.unit.kubelet_plugin.sharing.sharing_server import SharingServer


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
