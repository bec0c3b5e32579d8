"""Clusters as tests of the engine build them: nodes with GPUs, queues, groups that run or wait.

Queues count GPUs. A group `job` has the pods `job-0`, `job-1` and so on, each with a claim of its
own for its GPUs.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any, Final

from carina_dra.allocator.node import Node
from carina_dra.quantity import Quantity
from carina_dra.resource import (
    Allocation,
    ConsumerReference,
    Device,
    DeviceAllocation,
    DeviceCapacity,
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    DeviceResult,
    DeviceTaint,
    ExactCount,
    ExactDeviceRequest,
    Exactly,
    NodeSelector,
    NodeSelectorOperator,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    ObjectMeta,
    OnNode,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimStatus,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
    TaintEffect,
)
from controller.engine.decide.cycle import plan
from controller.engine.decide.gangs.isolation import Isolation
from controller.engine.decide.gangs.placement_unit import PlacementUnit
from controller.engine.decide.gangs.trial import Trial
from controller.engine.decide.nodes.domain import Domains
from controller.engine.decide.nodes.places import PlaceFinder
from controller.engine.decide.queues.shares import Shares
from controller.engine.model.group import Group, PodSet, SubGroup
from controller.engine.model.node import ClusterNode
from controller.engine.model.plan import Action, CarriedOver, Nomination, Plan, Start
from controller.engine.model.pod import Pending, Placed, Pod, PodNeeds, PodState
from controller.engine.model.queue import Entitlement, Queue
from controller.engine.model.resource import DevicesOf, Resource
from controller.engine.model.snapshot import EngineSettings, Snapshot
from controller.engine.model.volume import Storage
from controller.engine.state.state import State

DRIVER: Final = "gpu.carina.dev"
GPU: Final = DevicesOf("gpu")
GIB: Final = 1 << 30
NOW: Final = 1_000_000.0
TAINT: Final = DeviceTaint("gpu.carina.dev/drain", TaintEffect.NO_SCHEDULE, "recovery-action-4")


class Scene:
    """A cluster that a test puts together. Its objects have no namespace in their names."""

    def __init__(self, **settings: Any) -> None:
        self.now = NOW
        self.settings = EngineSettings(**settings)
        self.memory = CarriedOver()
        self.nodes: dict[str, ClusterNode] = {}
        self.slices: dict[str, ResourceSlice] = {}
        self.classes = ["gpu"]
        self.queues: dict[str, Queue] = {}
        self.groups: dict[str, Group] = {}
        self.pods: dict[str, Pod] = {}
        self.claims: dict[str, ResourceClaim] = {}
        self.budgets: dict[str, int] = {}
        self.topologies: dict[str, tuple[str, ...]] = {}
        self.namespaces: dict[str, Mapping[str, str]] = {}
        self.storage = Storage()
        self._used: dict[str, int] = {}

    def node(
        self,
        name: str,
        gpus: int = 0,
        *,
        labels: Mapping[str, str] | None = None,
        cpu: int = 64_000,
        **fields: Any,
    ) -> "Scene":
        """Adds a node."""
        self.nodes[name] = ClusterNode(Node(name, labels or {}), cpu, 256 * GIB, **fields)
        if gpus:
            self.slices[name] = gpu_slice(name, gpus)
        return self

    def queue(
        self,
        name: str,
        parent: str | None = None,
        *,
        quota: int | None = 0,
        limit: int | None = None,
        weight: int = 1,
        resource: Resource = GPU,
        **fields: Any,
    ) -> "Scene":
        """Adds a queue with its entitlement to GPUs, or to another resource."""
        entitlements = {resource: Entitlement(quota, limit, Fraction(weight))}
        self.queues[name] = Queue(name, parent, entitlements=entitlements, **fields)
        return self

    def group(
        self, name: str, queue: str = "q", root: SubGroup | None = None, **fields: Any
    ) -> "Scene":
        """Adds a group without pods."""
        self.groups[name] = Group(name, queue, root or PodSet("", 1), **fields)
        return self

    def runs(
        self,
        name: str,
        *nodes: str,
        gpus: int = 1,
        queue: str = "q",
        least: int | None = None,
        budgets: tuple[str, ...] = (),
        **fields: Any,
    ) -> "Scene":
        """Adds a group with a pod on each of the nodes; it needs `least`, or else all of them."""
        self.group(name, queue, PodSet("", len(nodes) if least is None else least), **fields)
        for node in nodes:
            self.pod(name, node, gpus=gpus, budgets=budgets)
        return self

    def waits(
        self,
        name: str,
        pods: int = 1,
        *,
        gpus: int = 1,
        queue: str = "q",
        least: int | None = None,
        needs: PodNeeds | None = None,
        **fields: Any,
    ) -> "Scene":
        """Adds a group of pods that wait; it needs `least`, or else all of them."""
        self.group(name, queue, PodSet("", pods if least is None else least), **fields)
        for _ in range(pods):
            self.pod(name, gpus=gpus, needs=needs)
        return self

    def pod(
        self,
        group: str | None,
        node: str | None = None,
        *,
        gpus: int = 1,
        name: str | None = None,
        state: PodState | None = None,
        needs: PodNeeds | None = None,
        claims: tuple[str, ...] | None = None,
        **fields: Any,
    ) -> "Scene":
        """Adds a pod that waits, or (with a node) is there; with a claim if it has GPUs."""
        number = sum(pod.group == group for pod in self.pods.values())
        key = name or f"{group}-{number}"
        if claims is None:
            claims = (key,) if gpus else ()
            if gpus:
                self.claim(key, gpus, node, users=(key,) if node else ())
        state = state or (Pending() if node is None else Placed(node))
        pod_needs = needs or PodNeeds()
        self.pods[key] = Pod(f"t/{key}", pod_needs, state, group, claims=_keys(claims), **fields)
        return self

    def claim(
        self, name: str, gpus: int = 1, node: str | None = None, users: Iterable[str] = ()
    ) -> "Scene":
        """Adds a claim for GPUs; on a node, it has the next ones."""
        allocation = None
        if node is not None:
            first = self._used.get(node, 0)
            self._used[node] = first + gpus
            allocation = gpus_of(node, *range(first, first + gpus))
        reserved = tuple(ConsumerReference(resource="pods", name=user, uid=user) for user in users)
        self.claims[name] = replace(
            gpu_claim(name, gpus), status=ResourceClaimStatus(allocation, reserved)
        )
        return self

    def snapshot(self) -> Snapshot:
        """The cluster as it is."""
        return Snapshot(
            now=self.now,
            nodes=tuple(self.nodes.values()),
            slices=tuple(self.slices.values()),
            classes=tuple(DeviceClass(ObjectMeta(name=name)) for name in self.classes),
            claims=tuple(self.claims.values()),
            queues=tuple(self.queues.values()),
            groups=tuple(self.groups.values()),
            pods=tuple(self.pods.values()),
            topologies=self.topologies,
            budgets=self.budgets,
            namespaces=self.namespaces,
            storage=self.storage,
            settings=self.settings,
            memory=self.memory,
        )

    def state(self) -> State:
        """Its state."""
        return State(self.snapshot())

    def trial(self) -> Trial:
        """A trial of its state."""
        state = self.state()
        return Trial(state, PlaceFinder(state), Domains(state))

    def plan(self) -> Plan:
        """What is decided for it."""
        return plan(self.snapshot())


def only(*actions: Action) -> dict[str, Any]:
    """Settings with these actions, for groups that have no room."""
    return {"actions": actions}


def isolation_of(state: State) -> Isolation:
    """The isolation of a cycle of a state."""
    return Isolation(Trial(state, PlaceFinder(state), Domains(state)))


def shares_of(state: State) -> Shares:
    """The fair shares in a state."""
    state.refresh()
    shares = Shares(state)
    shares.refresh()
    return shares


def started(plan: Plan) -> dict[str, str]:
    """The nodes of the pods that start."""
    return {_short(one.pod): one.node for one in plan.starts}


def nominated(plan: Plan) -> dict[str, str]:
    """The nodes of the pods that wait for others to leave."""
    return {_short(one.pod): one.node for one in plan.nominations}


def evicted(plan: Plan) -> list[str]:
    """The pods that go, in the order in which that was decided."""
    return [_short(one.pod) for one in plan.evictions]


def names(pods: Iterable[Pod]) -> list[str]:
    """The names of pods."""
    return [_short(pod.key) for pod in pods]


def pods_of(chunk: object) -> list[str]:
    """The names of the pods of a chunk."""
    assert isinstance(chunk, PlacementUnit), chunk
    return names(chunk.all_pods())


def gpu_slice(node: str, count: int) -> ResourceSlice:
    """The GPUs of a node, with 80 GiB each."""
    memory = {"memory": DeviceCapacity(Quantity.of(80 * GIB))}
    devices = tuple(Device(f"gpu-{index}", capacity=memory) for index in range(count))
    spec = ResourceSliceSpec(DRIVER, ResourcePool(node, 1, 1), OnNode(node), devices)
    return ResourceSlice(ObjectMeta(name=node), spec=spec)


def tainted(scene: Scene, node: str = "n", gpu: int = 0, taint: DeviceTaint = TAINT) -> Scene:
    """A scene in which a device has a taint of its driver."""
    spec = scene.slices[node].spec
    devices = list(spec.devices)
    devices[gpu] = replace(devices[gpu], taints=(*devices[gpu].taints, taint))
    spec = replace(spec, devices=tuple(devices))
    scene.slices[node] = replace(scene.slices[node], spec=spec)
    return scene


def gpu_claim(name: str, gpus: int = 1, **fields: Any) -> ResourceClaim:
    """A claim for GPUs."""
    wanted = ExactDeviceRequest("gpu", mode=ExactCount(gpus), **fields)
    spec = ResourceClaimSpec(DeviceClaim((DeviceRequest("gpus", Exactly(wanted)),)))
    return ResourceClaim(ObjectMeta(name=name, namespace="t", uid=name), spec=spec)


def gpus_of(node: str, *indices: int) -> Allocation:
    """Some GPUs of a node, allocated."""
    results = [DeviceResult("gpus", DRIVER, node, f"gpu-{index}") for index in indices]
    only_there = NodeSelectorRequirement("metadata.name", NodeSelectorOperator.IN, (node,))
    selector = NodeSelector((NodeSelectorTerm(match_fields=(only_there,)),))
    return Allocation(DeviceAllocation(tuple(results)), selector)


def devices_of(plan: Plan, pod: str) -> list[str]:
    """The devices that a pod gets, now or later."""
    decided: tuple[Start | Nomination, ...] = (*plan.starts, *plan.nominations)
    return [
        result.device
        for one in decided
        if one.pod == f"t/{pod}"
        for _, allocation in one.allocations
        for result in allocation.devices.results
    ]


def _keys(claims: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"t/{claim}" for claim in claims)


def _short(key: str) -> str:
    return key.removeprefix("t/")
