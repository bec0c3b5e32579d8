"""What is remembered does not grow with the names that have come and gone."""

import gc
from collections import Counter, deque
from collections.abc import Iterator
from typing import Any, Final

from carina_dra.kube.body import Body
from carina_dra.resource import (
    Allocation,
    DeviceClass,
    ObjectMeta,
    ResourceClaim,
    decode,
    encode,
)
from controller.engine.decide.cycle import Engine
from controller.engine.model.plan import Plan
from controller.engine.model.snapshot import Snapshot
from controller.observe.mirror import Mirror
from controller.observe.pod import ObservedPod, read_pod
from tests.unit.controller.bodies import claim_body, declared_queue, pod_body
from tests.unit.controller.engine.scene import NOW, Scene, gpu_slice

_NAMES: Final = 12
"""New namespaces in each round, each with a queue and groups of its own."""
_WARM: Final = 5
_ROUNDS: Final = 40
_LONGER_THAN_BACKOFF: Final = 100_000.0
"""Seconds."""
_SETTINGS: Final = {"attempt_steps": 150, "attempt_steps_per_node": 0}
_UNDECIDED: Final = 2
"""The pod of each name whose claim costs too much to decide on."""
_EXPENSIVE: Final = "true" + " && true" * 200
_BOUNDED: Final = frozenset(
    {
        "ClaimRequests._known",
        "ClaimRequests._prices",
        "PodRules._reaches",
        "NodeCounts.by_node",
    }
)
"""Caches with a bound of their own, which these names do not reach, and what they hold."""
_FINAL: Final = (str, bytes, int, float, type(None))


class Churn:
    """A cluster in which everything has a new name in each round."""

    def __init__(self) -> None:
        self.now = NOW
        self.mirror = Mirror(Snapshot(now=NOW, settings=Scene(**_SETTINGS).settings))
        for name, gpus in (("n1", 8), ("n2", 4)):
            self.mirror.put_node(Scene().node(name).nodes[name])
            self.mirror.put_devices(gpu_slice(name, gpus))
        self.mirror.put_devices(DeviceClass(ObjectMeta(name="gpu")))
        self.engine = Engine(self.mirror.state)

    def round(self, number: int) -> Counter[str]:
        """Names come, start, wait, are refused and go; what has happened."""
        happened = Counter[str]()
        names = [f"{number}-{index}" for index in range(_NAMES)]
        pods: dict[str, tuple[Body, Body]] = {}
        for name in names:
            self.mirror.put_namespace(f"ns-{name}", {"team": name})
            self.mirror.put_queue(f"q-{name}", declared_queue(f"q-{name}", quota=2))
            for index, gpus in enumerate((1, 1, 3, 64)):
                pods[f"ns-{name}/p{index}"] = self._submit(name, index, gpus)
        for _ in range(3):
            self.now += 5
            plan = self._decide()
            happened["undecided"] += len(plan.undecided)
            happened["waiting"] += len(plan.waiting)
            happened["evicted"] += len(plan.evictions)
            for start in plan.starts:
                happened["started"] += 1
                self._start(*pods[start.pod], start.node, dict(start.allocations), happened)
        for pod, claim in pods.values():
            self.mirror.remove_pod(read_pod(pod))
            self.mirror.remove_claim(decode(ResourceClaim, claim))
        for name in names:
            self.mirror.put_queue(f"q-{name}", None)
            self.mirror.put_namespace(f"ns-{name}", None)
        for _ in range(3):
            self.now += _LONGER_THAN_BACKOFF
            self._decide()
        return happened

    def _submit(self, name: str, index: int, gpus: int) -> tuple[Body, Body]:
        claim = claim_body(f"c{index}", gpus, uid=f"c-{name}-{index}")
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "o", "uid": f"o-{name}"}
        labels = {"app": name}
        term = {"topologyKey": "host", "labelSelector": {"matchLabels": labels}}
        if index == _UNDECIDED:
            exactly = claim["spec"]["devices"]["requests"][0]["exactly"]
            exactly["selectors"] = [{"cel": {"expression": f"{_EXPENSIVE} // {name}"}}]
        pod = pod_body(
            f"p{index}",
            uid=f"p-{name}-{index}",
            queue=f"q-{name}",
            claims=[f"c{index}"],
            owner=owner | {"controller": True},
            labels=labels,
            affinity={
                "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
            },
        )
        for body in (claim, pod):
            body["metadata"]["namespace"] = f"ns-{name}"
        self.mirror.put_claim(decode(ResourceClaim, claim))
        self.mirror.put_pod(read_pod(pod))
        return pod, claim

    def _start(
        self,
        pod: Body,
        claim: Body,
        node: str,
        allocations: dict[str, Allocation],
        happened: Counter[str],
    ) -> None:
        """The pod starts; that of every second name is refused there."""
        pod["spec"]["schedulingGates"] = []
        (allocation,) = allocations.values()
        claim["status"] = {"allocation": encode(allocation)}
        for body in (pod, claim):
            body["metadata"]["resourceVersion"] = "2"
        self.mirror.put_claim(decode(ResourceClaim, claim))
        started: ObservedPod = read_pod(pod)
        self.mirror.put_pod(started)
        group = self.mirror.roster.group_of(started.key)
        if group is not None and happened["started"] % 2:
            happened["refused"] += 1
            self.mirror.refuse(started, group, (node, self.now + 60))

    def _decide(self) -> Plan:
        self.mirror.refresh(self.now)
        plan = self.engine.decide()
        self.mirror.state.memory = plan.memory
        return plan


def sizes(*roots: object) -> Counter[str]:
    """How many entries the containers have that objects of the project hold, by class and field."""
    found, seen = Counter[str](), set[int]()
    queue: deque[tuple[str, object]] = deque((type(root).__name__, root) for root in roots)
    while queue:
        path, value = queue.popleft()
        if isinstance(value, _FINAL) or id(value) in seen or isinstance(value, type):
            continue
        seen.add(id(value))
        for inner, of in _inside(path, value):
            queue.append((inner, of))
        if isinstance(value, dict | list | set | deque):
            found[path] += len(value)
    return found


def _inside(path: str, value: Any) -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        yield from ((f"{path}[]", one) for pair in value.items() for one in pair)
    elif isinstance(value, list | set | frozenset | tuple | deque):
        yield from ((f"{path}[]", one) for one in value)
    elif type(value).__module__.startswith(("controller", "carina_dra")):
        name = type(value).__name__
        slots = [one for of in type(value).__mro__ for one in getattr(of, "__slots__", ())]
        for field in (*slots, *getattr(value, "__dict__", ())):
            if hasattr(value, field):
                yield f"{name}.{field}", getattr(value, field)


def test_nothing_grows_with_names_that_have_come_and_gone() -> None:
    churn = Churn()
    happened = Counter[str]()
    for number in range(_WARM):
        happened += churn.round(number)
    gc.collect()
    before = sizes(churn.mirror, churn.engine)
    for number in range(_WARM, _WARM + _ROUNDS):
        happened += churn.round(number)
    after = sizes(churn.mirror, churn.engine)
    assert all(happened[what] for what in ("started", "waiting", "refused", "undecided")), happened
    grown = {path: size - before[path] for path, size in after.items() if size > before[path]}
    assert {path for path, more in grown.items() if more > _NAMES} <= _BOUNDED, grown
