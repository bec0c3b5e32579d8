"""A cluster in memory: an API server that fails, kube-scheduler, and the controller, step by step.

All that happens at the same time in a cluster happens here one after the other, in random order:
each write, each event that a watch shows, each decision. After every write it is checked that no
device has two claims, that a gang has lost its gates only with all of its claims written, and that
nothing was taken from a pod that may run.
"""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from carina_dra.kube.api_resource import PODS, RESOURCE_CLAIMS, ApiResource
from carina_dra.kube.body import Body
from carina_dra.kube.client import MergePatch
from carina_dra.kube.errors import (
    ApiError,
    ApiOperation,
    Conflict,
    NotFound,
    ServerError,
    TooManyRequests,
    Unreachable,
)
from carina_dra.resource import DeviceClass, ObjectMeta, ResourceClaim, decode
from controller.act.writer import Writer
from controller.api.pod_group import DeclaredGroup
from controller.engine.model.group import PodSet
from controller.engine.model.snapshot import Snapshot
from controller.names import DELETE_PROTECTION, GATE, GROUP_LABEL
from controller.observe.mirror import Mirror
from controller.observe.pod import read_pod
from controller.report.metrics import ControllerMetrics
from controller.run.inbox import Inbox
from controller.run.loop import Loop
from simulation.api_server.patch import merge
from tests.unit.controller.bodies import JOB, claim_body, declared_queue, pod_body
from tests.unit.controller.engine.scene import NOW, Scene, gpu_slice

NODES: Final = {"n1": 3, "n2": 2}
_NO_TIME: Final = 1e-9
"""Seconds of a decision that asks one group only."""
OPERATION: Final = ApiOperation("write", "object")
_LATE: Final = 0.5
"""The part of the failed requests that are carried out nevertheless, later."""


class Store:
    """The objects, their history, and what must hold after every write of the controller."""

    def __init__(self) -> None:
        self.version = 0
        self.pods: dict[str, Body] = {}
        self.claims: dict[str, Body] = {}
        self.log: list[tuple[str, Body, bool]] = []
        """Kind, object, and whether it is gone."""
        self.violation: AssertionError | None = None
        self.disturbed: set[str | None] = set()
        """Claims that others have taken devices from, and groups that have lost pods."""

    def put(self, kind: str, body: Body) -> Body:
        self.version += 1
        metadata = {**body["metadata"], "resourceVersion": str(self.version)}
        stored = {**body, "metadata": metadata}
        self._of(kind)[metadata["name"]] = stored
        self.log.append((kind, stored, False))
        return stored

    def remove(self, kind: str, name: str) -> None:
        self.version += 1
        self.log.append((kind, self._of(kind).pop(name), True))

    def patch(self, kind: str, name: str, changes: Body, subresource: str | None) -> Body:
        before = self._of(kind).get(name)
        if before is None:
            raise NotFound(OPERATION, name)
        metadata = before["metadata"]
        for field_, value in changes["metadata"].items():
            if field_ in ("uid", "resourceVersion") and value != metadata[field_]:
                raise Conflict(OPERATION, f"{name}: another {field_}")
        after = merge(before, changes)
        if after == before:
            return before
        assert ("status" in changes) == (subresource == "status")
        stored = self.put(kind, after)
        try:
            self.check(before, stored)
        except AssertionError as violation:  # which the writer would take for a failed write
            self.violation = self.violation or violation
        return stored

    def _of(self, kind: str) -> dict[str, Body]:
        return self.pods if kind == "pod" else self.claims

    # What must hold.

    def check(self, before: Body, after: Body) -> None:
        users = Counter(
            (result["pool"], result["device"])
            for claim in self.claims.values()
            for result in self.results(claim)
        )
        assert all(count == 1 for count in users.values()), f"allocated twice: {users}"
        if after["kind"] == "ResourceClaim":
            if self.results(before) and not self.results(after):
                name = after["metadata"]["name"]
                users_of = [pod for pod in self.pods.values() if name in claims_of(pod)]
                assert all(map(is_held, users_of)), f"{name} is taken from a pod that may run"
        elif is_held(before) and not is_held(after):
            self._check_start(after)

    def _check_start(self, pod: Body) -> None:
        group = pod["metadata"]["labels"].get(GROUP_LABEL)
        if group in self.disturbed or not self.disturbed.isdisjoint(claims_of(pod)):
            return
        assert self.is_allocated(pod), "a pod lost its gate without devices"
        gang = [
            one for one in self.pods.values() if one["metadata"]["labels"].get(GROUP_LABEL) == group
        ]
        ready = sum(map(self.is_allocated, gang))
        least = 1 if group is None else int(group.rpartition("-")[2])
        assert ready >= least, f"{group} loses its gates with {ready} claims written"
        for name in claims_of(pod):
            reserved = (self.claims[name].get("status") or {}).get("reservedFor") or ()
            assert pod["metadata"]["uid"] in {entry["uid"] for entry in reserved}, (
                f"{name} may be taken back from a pod that starts"
            )

    def results(self, claim: Body) -> list[Body]:
        allocation = (claim.get("status") or {}).get("allocation")
        found: list[Body] = allocation["devices"]["results"] if allocation else []
        return found

    def is_allocated(self, pod: Body) -> bool:
        return all(
            self.results(self.claims[name]) for name in claims_of(pod) if name in self.claims
        )


def claims_of(pod: Body) -> list[str]:
    return [each["resourceClaimName"] for each in pod["spec"]["resourceClaims"]]


def is_held(pod: Body) -> bool:
    return {"name": GATE} in pod["spec"]["schedulingGates"]


@dataclass
class FaultyClient:
    """The part of a client that the writer uses; some requests or their answers are lost.

    Some are carried out only after the client has given up.
    """

    store: Store
    rng: Random
    faults: float
    evict: Callable[[str], None]
    late: list[Callable[[], Body]] = field(default_factory=list)

    def carry_out_late(self) -> None:
        """The server carries out a request that the client has given up."""
        if self.late:
            with suppress(ApiError):
                self.late.pop(self.rng.randrange(len(self.late)))()

    def patch(
        self,
        resource: ApiResource,
        name: str,
        patch: MergePatch,
        *,
        subresource: str | None = None,
        **_: Any,
    ) -> Body:
        kind = {PODS: "pod", RESOURCE_CLAIMS: "claim"}[resource]
        return self._faulty(lambda: self.store.patch(kind, name, patch.changes, subresource))

    def create_subresource(
        self, _: ApiResource, name: str, __: str, body: Body, **___: Any
    ) -> Body:
        def evict() -> Body:
            pod = self.store.pods.get(name)
            if pod is None:
                raise NotFound(OPERATION, name)
            for field_, value in body["deleteOptions"]["preconditions"].items():
                if pod["metadata"][field_] != value:
                    raise Conflict(OPERATION, name)
            self.evict(name)
            return {}

        return self._faulty(evict)

    def _faulty(self, write: Callable[[], Body]) -> Body:
        dice = self.rng.random()
        if dice < self.faults / 2:
            errors: tuple[ApiError, ...] = (
                ServerError(OPERATION, "failed"),
                TooManyRequests(OPERATION, "wait", 1),
                Unreachable(OPERATION, "refused"),
            )
            if self.rng.random() < _LATE:
                self.late.append(write)
                raise Unreachable(OPERATION, "the time is out")
            raise self.rng.choice(errors)
        answer = write()
        if dice < self.faults:
            raise Unreachable(OPERATION, "the answer is lost")
        return answer


class Steps:
    """An executor whose work is done one piece after the other, when a test says so."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self.work: list[Callable[[], object]] = []

    def submit(self, work: Callable[[], object]) -> None:
        self.work.append(work)

    def step(self) -> None:
        if self.work:
            self.work.pop(self._rng.randrange(len(self.work)))()


class Silent:
    """Reports nothing."""

    def report(self, *_: object) -> bool:
        return False

    def record(self, *_: object) -> None:
        pass


@dataclass
class World:
    """A cluster with jobs that come and go."""

    rng: Random
    store: Store = field(default_factory=Store)
    faults: float = 0.2
    now: float = NOW
    created: int = 0
    gangs: dict[str, int] = field(default_factory=dict)
    """The size of each PodGroup; its name ends with it."""

    def __post_init__(self) -> None:
        self.start()

    # The controller.

    def restart(self) -> None:
        """A new controller, when the Lease of the old one is over, and all that it has sent."""
        while self.client.late:
            self.client.carry_out_late()
        self.start()

    def start(self) -> None:
        """A controller, which knows what a list shows; what another has not sent is dropped."""
        self.client = FaultyClient(
            self.store, self.rng, self.faults, lambda name: self.remove(name, comes_again=True)
        )
        self.steps, self.inbox = Steps(self.rng), Inbox()
        self.mirror = Mirror(Snapshot(now=self.now, settings=Scene().settings))
        for name, gpus in NODES.items():
            self.mirror.put_node(Scene().node(name).nodes[name])
            self.mirror.put_devices(gpu_slice(name, gpus))
        self.mirror.put_devices(DeviceClass(ObjectMeta(name="gpu")))
        self.mirror.put_queue("q", declared_queue())
        for name in self.gangs:
            self._declare(name)
        client, silent, pool = self.client, Silent(), self.steps
        anything: Any = silent
        metrics = ControllerMetrics()
        writer_client: Any = client
        executor: Any = pool
        inbox = self.inbox
        writer = Writer(
            writer_client,
            lambda outcome: inbox.put(lambda: loop.take(outcome)),
            pool=executor,
            leading=lambda: True,
            metrics=metrics,
            retry_seconds=0,
        )
        self.loop = loop = Loop(
            self.mirror,
            writer,
            anything,
            anything,
            metrics,
            inbox=self.inbox,
            decide_seconds=self.rng.choice((60, _NO_TIME)),
            verdict_seconds=1,
            avoid_seconds=60,
            now=lambda: self.now,
        )
        self.shown = {"pod": len(self.store.log), "claim": len(self.store.log)}
        for kind, objects in (("pod", self.store.pods), ("claim", self.store.claims)):
            for body in objects.values():
                self._show(kind, body, gone=False)

    def watch(self) -> None:
        """One of the watches shows its next event."""
        kind = self.rng.choice(("pod", "claim"))
        while self.shown[kind] < len(self.store.log):
            of, body, gone = self.store.log[self.shown[kind]]
            self.shown[kind] += 1
            if of == kind:
                return self._show(kind, body, gone=gone)
        return None

    def _show(self, kind: str, body: Body, *, gone: bool) -> None:
        if kind == "pod":
            pod = read_pod(body)
            self.mirror.remove_pod(pod) if gone else self.mirror.put_pod(pod)
        else:
            claim = decode(ResourceClaim, body)
            self.mirror.remove_claim(claim) if gone else self.mirror.put_claim(claim)

    def decide(self) -> bool:
        self.now += self.rng.choice((0, 0.1, 2))
        self.inbox.do(0)
        return self.loop.step(busy=True)

    # Others.

    def submit(self) -> None:
        """A gang of pods with a claim each, or a pod by itself; sometimes they share a claim.

        Sometimes a pod by itself joins those that have a claim already.
        """
        size = self.rng.choice((1, 1, 2, 3))
        self.created += 1
        group = None
        if size == 1 and self.store.claims and self.rng.random() < 0.3:
            claim = self.rng.choice(sorted(self.store.claims))
            return self._create(f"p{self.created}-0", None, claim)
        if size > 1:
            group = f"g{self.created}-{size}"
            self.gangs[group] = size
            self._declare(group)
        shared = self.rng.random() < 0.2
        names = [f"p{self.created}-{index}" for index in range(size)]
        for name in names:
            self._create(name, group, names[0] if shared else name)
        return None

    def _create(self, name: str, group: str | None, claim: str) -> None:
        self.created += 1
        if claim not in self.store.claims:
            body = claim_body(claim, uid=f"c{self.created}", finalizers=[DELETE_PROTECTION])
            self.store.put("claim", body)
        owner = {**JOB, "name": f"o{name}", "kind": "ReplicaSet", "apiVersion": "apps/v1"}
        body = pod_body(name, uid=f"u{self.created}", group=group, claims=[claim], owner=owner)
        self.store.put("pod", body)

    def _declare(self, name: str) -> None:
        least = PodSet("", self.gangs[name])
        declared = DeclaredGroup("t", name, f"uid-{name}", 1, NOW, least)
        self.mirror.declare(declared.key, declared)

    def schedule(self) -> None:
        """kube-scheduler binds a pod that has lost its gate, if it has its devices."""
        for name, pod in self.store.pods.items():
            if is_held(pod) or pod["spec"].get("nodeName"):
                continue
            (claim,) = claims_of(pod)
            results = self.store.results(self.store.claims[claim])
            if not results:
                refused = pod_body("p", verdict="cannot allocate all claims")["status"]
                if pod["status"] != refused:
                    self.store.put("pod", {**pod, "status": refused})
                    return
                continue
            node = results[0]["pool"]
            spec = {**pod["spec"], "nodeName": node}
            self.store.put("pod", {**self.store.pods[name], "spec": spec})
            return

    def end(self) -> None:
        """A pod is deleted, whatever it does; sometimes one of its name is created again."""
        if not self.store.pods:
            return
        name = self.rng.choice(sorted(self.store.pods))
        self.remove(name, comes_again=self.rng.random() < 0.4)

    def remove(self, name: str, *, comes_again: bool) -> None:
        pod = self.store.pods[name]
        group = pod["metadata"]["labels"].get(GROUP_LABEL)
        (claim,) = claims_of(pod)
        self.store.disturbed |= {claim} if group is None else {claim, group}
        self.store.remove("pod", name)
        self.collect()
        if comes_again:
            self._create(name, group, claim)

    def collect(self) -> None:
        """kube-controller-manager: claims that no pod uses go, with their devices."""
        used = {claim for pod in self.store.pods.values() for claim in claims_of(pod)}
        live = {pod["metadata"]["uid"] for pod in self.store.pods.values()}
        for name, claim in list(self.store.claims.items()):
            if name not in used:
                self.store.remove("claim", name)
                continue
            status = claim.get("status") or {}
            reserved = status.get("reservedFor") or []
            kept = [entry for entry in reserved if entry["uid"] in live]
            if kept != reserved:
                new = {**status, "reservedFor": kept} if kept else {}
                self.store.put("claim", {**claim, "status": new})

    def label(self) -> None:
        """Somebody labels an object, which makes writes that were decided before conflict."""
        kind, objects = self.rng.choice((("pod", self.store.pods), ("claim", self.store.claims)))
        if objects:
            body = objects[self.rng.choice(sorted(objects))]
            labels = {**body["metadata"].get("labels", {}), "at": str(self.store.version)}
            metadata = {**body["metadata"], "labels": labels}
            self.store.put(kind, {**body, "metadata": metadata})

    # Time.

    def step(self) -> None:
        """Something happens."""
        moves: tuple[tuple[int, Callable[[], object]], ...] = (
            (12, self.watch),
            (12, self.steps.step),
            (2, self.client.carry_out_late),
            (8, self.decide),
            (4, self.schedule),
            (3, self.submit),
            (2, self.end),
            (1, self.label),
            (1, self.restart if self.rng.random() < 0.3 else self.collect),
        )
        self.rng.choices([move for _, move in moves], [weight for weight, _ in moves])[0]()
        self._check()

    def _check(self) -> None:
        if self.store.violation is not None:
            raise self.store.violation

    def settle(self) -> None:
        """Nobody fails or comes any more, and everything goes on until nothing changes."""
        self.client.faults = 0
        while self.client.late:
            self.client.carry_out_late()
        quiet = rounds = 0
        while quiet < 5:
            before, rounds = self.store.version, rounds + 1
            assert rounds < 100, f"it never ends: {self.store.log[-5:]}"
            self.now += 100
            self.collect()
            while any(at < len(self.store.log) for at in self.shown.values()):
                self.watch()
            while self.decide():
                pass
            while self.steps.work:
                self.steps.step()
            for _ in self.store.pods:
                self.schedule()
            self._check()
            quiet = quiet + 1 if self.store.version == before else 0
