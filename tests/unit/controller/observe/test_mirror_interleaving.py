"""A mirror depends on what there is in the end, not on how it came to know that."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from random import Random
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from carina_dra.kube.body import Body
from carina_dra.resource import DeviceClass, ObjectMeta, ResourceClaim, decode
from controller.engine.model.group import PodSet
from controller.engine.model.queue import QUEUE_LABEL
from controller.engine.model.snapshot import Snapshot
from controller.names import GROUP, RESERVATIONS
from controller.observe.mirror import Assumed, Mirror
from controller.observe.pod import read_pod
from tests.unit.controller.bodies import JOB, claim_body, declared_queue, pod_body
from tests.unit.controller.engine.properties.examples import examples
from tests.unit.controller.engine.properties.following import observe
from tests.unit.controller.engine.scene import NOW, Scene, gpu_slice, gpus_of

NODES: Final = ("n1", "n2")
GPUS: Final = 3
PODS: Final = ("a", "b", "c", "d")
CLAIMS: Final = ("x", "y", "z")
UNTIL: Final = datetime.fromtimestamp(NOW + 5, UTC).isoformat()


@dataclass
class History:
    """Objects that come, change and go, as an API server keeps them."""

    rng: Random
    version: int = 0
    live: dict[tuple[str, str], Body] = field(default_factory=dict)
    """By kind and name."""
    events: list[tuple[str, Body]] = field(default_factory=list)
    """Kind and body, which has the member `deleted` if the object is gone."""

    def change(self) -> None:
        rng = self.rng
        kind = rng.choice(("pod", "pod", "claim"))
        name = rng.choice(PODS if kind == "pod" else CLAIMS)
        before = self.live.get((kind, name))
        self.version += 1
        if before is not None and rng.random() < 0.2:
            self.events.append((kind, {**before, "gone": True}))
            del self.live[kind, name]
            return
        uid = before["metadata"]["uid"] if before else f"uid-{name}-{self.version}"
        made = self._pod(name, uid) if kind == "pod" else self._claim(name, uid)
        self.live[kind, name] = made
        self.events.append((kind, made))

    def _pod(self, name: str, uid: str) -> Body:
        rng = self.rng
        held = rng.random() < 0.5
        return pod_body(
            name,
            uid=uid,
            version=self.version,
            queue=rng.choice(("q", "q", "r", None)),
            gates=("scheduling.carina.dev/queue",) if held else (),
            given=None if held else rng.choice((None, "n1")),
            node=None if held else rng.choice((None, *NODES)),
            claims=rng.sample(CLAIMS, rng.randrange(3)),
            owner=rng.choice((None, JOB)),
            verdict=rng.choice((None, "no")),
            deleted=rng.choice((None, None, UNTIL)),
            phase=rng.choice(("Pending", "Running", "Succeeded")),
            annotations=rng.choice(({}, {"scheduling.carina.dev/min-count": "2"})),
        )

    def _claim(self, name: str, uid: str) -> Body:
        rng = self.rng
        allocation = None
        if rng.random() < 0.6:  # of a claim's own device, so that none is given twice
            allocation = gpus_of(rng.choice(NODES), CLAIMS.index(name))
        labels = rng.choice(({}, {}, {QUEUE_LABEL: "q"}))
        body = claim_body(name, uid=uid, version=self.version, allocation=allocation, labels=labels)
        if allocation is not None and rng.random() < 0.2:
            own = {"apiGroup": GROUP, "resource": RESERVATIONS, "name": name, "uid": uid}
            body["status"]["reservedFor"] = [own]
            return body
        if allocation is not None and rng.random() < 0.6:
            pods = [one for (kind, _), one in self.live.items() if kind == "pod"]
            if pods:
                of = rng.choice(pods)["metadata"]
                body["status"]["reservedFor"] = [
                    {"resource": "pods", "name": of["name"], "uid": of["uid"]}
                ]
        return body


def mirror() -> Mirror:
    scene = Scene()
    mirror = Mirror(Snapshot(now=NOW, settings=scene.settings))
    for name in NODES:
        mirror.put_node(Scene().node(name).nodes[name])
        mirror.put_devices(gpu_slice(name, GPUS))
    mirror.put_devices(DeviceClass(ObjectMeta(name="gpu")))
    mirror.put_queue("q", declared_queue())
    return mirror


def show(mirror: Mirror, kind: str, body: Body) -> None:
    """Shows a mirror an object, as a watch does, or the answer to a write."""
    if kind == "pod":
        pod = read_pod(body)
        mirror.remove_pod(pod) if body.get("gone") else mirror.put_pod(pod)
    else:
        claim = decode(ResourceClaim, {k: v for k, v in body.items() if k != "gone"})
        mirror.remove_claim(claim) if body.get("gone") else mirror.put_claim(claim)


@dataclass
class Follower:
    """A mirror that is shown events, late and again, while the controller acts."""

    rng: Random
    history: History
    mirror: Mirror = field(default_factory=mirror)
    now: float = NOW
    shown: int = 0
    """How many events the watches have shown."""
    starts: list[dict[str, Assumed]] = field(default_factory=list)
    """What is being written."""
    uids: dict[int, str] = field(default_factory=dict)
    """The pod of each start, by the start's identity."""
    memories: list[Callable[[Mirror], Any]] = field(default_factory=list)
    """What the controller remembers for a time, in the order in which it learnt that."""

    def step(self) -> None:
        moves = (
            (4, self._watch),
            (2, self._answer),
            (1, self._start),
            (1, self._end_start),
            (1, self._remember),
            (2, self.refresh),
        )
        weights = [weight for weight, _ in moves]
        self.rng.choices([move for _, move in moves], weights)[0]()

    def _watch(self) -> None:
        if self.shown < len(self.history.events):
            show(self.mirror, *self.history.events[self.shown])
            self.shown += 1

    def end(self) -> None:
        """The watches have shown everything; starts of pods that are gone have ended."""
        while self.shown < len(self.history.events):
            self._watch()
        for start in self.starts:
            if any(self._is_over(key, each) for key, each in start.items()):
                self.mirror.forget(start)
        self.starts = [
            start
            for start in self.starts
            if not any(self._is_over(key, each) for key, each in start.items())
        ]

    def _is_over(self, pod: str, assumed: Assumed) -> bool:
        known = self.mirror.pods.get(pod)
        return known is None or known.uid != self.uids[id(assumed)]

    def _answer(self) -> None:
        """The answer to a write of any time comes, of an object that watches have shown."""
        known = {body["metadata"]["uid"] for _, body in self.history.events[: self.shown]}
        some = [
            (kind, body)
            for kind, body in self.history.events
            if not body.get("gone") and body["metadata"]["uid"] in known
        ]
        if some:
            show(self.mirror, *self.rng.choice(some))

    def _start(self) -> None:
        pods = [pod for key, pod in self.mirror.pods.items() if key not in self.mirror.assumed]
        if not pods:
            return
        pod, node = self.rng.choice(pods), self.rng.choice(NODES)
        free = [
            claim
            for claim in pod.claims
            if claim
            not in {
                one for start in self.starts for each in start.values() for one in each.allocations
            }
        ]
        allocations = {
            claim: gpus_of(node, CLAIMS.index(claim.removeprefix("t/"))) for claim in free
        }
        start = {pod.key: Assumed(node, allocations)}
        self.uids[id(start[pod.key])] = pod.uid
        self.mirror.assume(pod.key, start[pod.key])
        self.starts.append(start)

    def _end_start(self) -> None:
        if self.starts:
            self.mirror.forget(self.starts.pop(self.rng.randrange(len(self.starts))))

    def _remember(self) -> None:
        rng, until = self.rng, self.now + self.rng.choice((1, 4, 100))
        groups = sorted(self.mirror.roster.groups)
        if groups:
            group = rng.choice(groups)
            memory: Callable[[Mirror], Any] = rng.choice(
                (
                    lambda mirror: mirror.avoid(group, "n1", until),
                    lambda mirror: mirror.hold_back(group, until, keeps=until > 3),
                )
            )
            memory(self.mirror)
            self.memories.append(memory)

    def refresh(self) -> None:
        # Less than the minute in which devices that pods have left are believed to become free:
        # since when they are is what only the follower knows.
        self.now = min(self.now + self.rng.choice((0, 1, 3)), NOW + 59)
        self.mirror.refresh(self.now)


@examples(300)
@given(st.randoms(use_true_random=False))
def test_a_mirror_is_as_one_that_has_seen_the_last_state_only(rng: Random) -> None:
    history = History(rng)
    follower = Follower(rng, history)
    for _ in range(rng.randrange(60)):
        rng.choice((history.change, follower.step))()
    follower.end()
    fresh = mirror()
    for kind, body in last_objects(history, rng):
        show(fresh, kind, body)
    fresh.refresh(follower.now)
    for start in follower.starts:
        for key, assumed in start.items():
            fresh.assume(key, assumed)
    for memory in follower.memories:
        memory(fresh)
    for one in (follower.mirror, fresh):
        one.refresh(follower.now)
        one.state.refresh()
    assert seen(follower.mirror) == seen(fresh)
    assert (follower.mirror.wake or math.inf) <= (fresh.wake or math.inf)


def last_objects(history: History, rng: Random) -> list[tuple[str, Body]]:
    """The objects that there are in the end, in any order."""
    objects = [(kind, body) for (kind, _), body in history.live.items()]
    rng.shuffle(objects)
    return objects


def seen(mirror: Mirror) -> dict[str, object]:
    """What may be observed of a mirror, without what it remembers: nominations, and minimums."""
    found = observe(mirror.state)
    found.pop("memory")
    groups = {
        key: replace(group, root=PodSet("", 0), started=None)
        for key, group in mirror.state.occupancy.groups.items()
    }
    return found | {
        "pods": dict(mirror.state.occupancy.pods),
        "claims": dict(mirror.state.occupancy.claims),
        "groups": groups,
        "tentative": dict(mirror.tentative()),
        "standalone": dict(mirror.standalone),
        "ending": dict(mirror.ending),
        "refused": set(mirror.refused),
    }
