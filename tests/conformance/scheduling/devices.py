"""The GPUs of a vector as Dynamic Resource Allocation has them: slices, classes and claims.

A GPU is two devices that exclude each other by its counter: `gpu-<i>`, for whole GPUs, and
`gpu-<i>-share`, of which claims have memory. A case that has ResourceSlices of its own keeps them
beside that.
"""

from collections import Counter as Counts
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from carina_dra.quantity import Quantity
from carina_dra.resource import (
    Allocation,
    CapacityRange,
    CapacityRequestPolicy,
    CapacityRequirements,
    CelSelector,
    ConsumerReference,
    Counter,
    CounterSet,
    Device,
    DeviceAllocation,
    DeviceCapacity,
    DeviceClaim,
    DeviceClass,
    DeviceClassSpec,
    DeviceCounterConsumption,
    DeviceRequest,
    DeviceResult,
    DeviceSelector,
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
    StringAttribute,
    ValidRange,
)
from controller.engine.model.queue import QUEUE_LABEL
from controller.engine.model.resource import CapacityOf, DevicesOf, Resource
from tests.conformance.scheduling.vector import (
    ENDED,
    Claim,
    Cluster,
    Job,
    Node,
    Request,
    Task,
    Vector,
    VectorError,
)

DRIVER: Final = "gpu.carina.dev"
MEMORY: Final = f"{DRIVER}/memory"
_SHARE: Final = "share"
_MIB: Final = 1 << 20
_NOMINAL_MIB: Final = 1000
"""The memory of a GPU where only fractions are asked for: then nodes may differ in it, as a
fraction of a GPU is the same part of the quota everywhere."""


def claim_key(job: Job, task: Task) -> str:
    """The key of the claim for the GPUs that a task asks for by itself."""
    return f"{job.namespace}/{task.name}-gpus"


@dataclass(frozen=True, slots=True)
class Gpus:
    """What the GPUs of a vector are, and how queues count them."""

    whole_class: str
    """The DeviceClass of whole GPUs."""
    counts_memory: bool
    """Whether queues count the memory of GPUs, so that whole ones and shares are one resource."""
    nominal: bool
    """Whether a GPU has a nominal memory, and not that of its node."""
    gpu_mib: int
    """The memory that counts as one GPU: the least that a GPU has."""
    own: bool
    """Whether nodes have GPUs besides those of given ResourceSlices."""
    given: tuple[str, ...]
    """The given DeviceClasses that count as GPUs."""

    @classmethod
    def of(cls, vector: Vector) -> "Gpus":
        """Those of a vector.

        Raises:
            VectorError: it shares GPUs, and has others that only claims can ask for.
        """
        cluster = vector.cluster
        requests = [task.request for job in vector.jobs for task in job.tasks]
        amounts = [amount.gpu for queue in cluster.queues for amount in (queue.quota, queue.limit)]
        fractions = any(request.gpu_fraction is not None for request in requests)
        memories = any(request.gpu_memory_mib is not None for request in requests)
        counts_memory = fractions or memories or any(amount != int(amount) for amount in amounts)
        given = tuple(sorted(each.name for each in cluster.device_classes if is_gpu(each.name)))
        if counts_memory and given:
            raise VectorError("parts of GPUs, and GPUs of a class that has no memory to count")
        least = min((node.gpu_memory_mib for node in cluster.nodes if node.gpus), default=1)
        nominal = not memories
        return cls(
            whole_class=given[0] if given else "gpu",
            counts_memory=counts_memory,
            nominal=nominal,
            gpu_mib=_NOMINAL_MIB if nominal else least,
            own=any(node.gpus for node in cluster.nodes) or any(map(_gpus_of, requests)),
            given=given,
        )

    @property
    def resource(self) -> Resource:
        """What the queues count."""
        return CapacityOf(MEMORY) if self.counts_memory else DevicesOf(self.whole_class)

    def amount(self, gpus: float) -> int:
        """An amount of GPUs, in units of the resource."""
        return round(gpus * self.gpu_mib * _MIB) if self.counts_memory else int(gpus)

    def classes(self, cluster: Cluster) -> tuple[DeviceClass, ...]:
        """The DeviceClasses: the given ones, and those of the nodes' own GPUs."""
        given = [DeviceClass(ObjectMeta(name=each.name)) for each in cluster.device_classes]
        names = [name for name in ("gpu", _SHARE) if self.own and not self.given]
        return (*given, *(_class_of_type(name) for name in names))

    def slices(self, cluster: Cluster) -> tuple[ResourceSlice, ...]:
        """The ResourceSlices: the given ones, and those of the nodes' own GPUs."""
        sizes = Counts((each.driver, each.pool) for each in cluster.resource_slices)
        given = (
            ResourceSlice(
                ObjectMeta(name=each.name),
                spec=ResourceSliceSpec(
                    each.driver,
                    ResourcePool(each.pool, 1, sizes[each.driver, each.pool]),
                    OnNode(each.node),
                    tuple(Device(name) for name in each.devices),
                ),
            )
            for each in cluster.resource_slices
        )
        own = (each for node in cluster.nodes if node.gpus for each in self._slices(node))
        return (*given, *own)

    def memory(self, node: Node) -> Quantity:
        """The memory of a GPU of the node, in bytes."""
        return _mib(self.gpu_mib if self.nominal else node.gpu_memory_mib)

    def claim(self, job: Job, task: Task) -> ResourceClaim | None:
        """The claim for the GPUs that a task asks for by itself; None if it asks for none."""
        request = task.request
        if not _gpus_of(request):
            return None
        if request.is_shared:
            asked = ExactDeviceRequest(
                _SHARE,
                mode=ExactCount(request.shared_devices or 1),
                capacity=CapacityRequirements({"memory": self._share(request)}),
            )
        else:
            selectors = (_selector(f'device.driver == "{DRIVER}"'),) if self.given else ()
            asked = ExactDeviceRequest(self.whole_class, selectors, ExactCount(request.gpu))
        return _claim(job.namespace, f"{task.name}-gpus", asked, {})

    def given_claim(self, claim: Claim) -> ResourceClaim:
        """A claim of the vector, as it is at the start."""
        # Every device matches every class, so that those which count as GPUs are one.
        name = self.whole_class if claim.device_class in self.given else claim.device_class
        selectors = (_selector(f'device.driver != "{DRIVER}"'),) if self.own else ()
        asked = ExactDeviceRequest(name, selectors, ExactCount(claim.count))
        allocation = None
        if claim.allocation is not None:
            results = (
                DeviceResult("gpus", each.driver, each.pool, each.device)
                for each in claim.allocation
            )
            pools = {each.pool for each in claim.allocation}
            allocation = Allocation(DeviceAllocation(tuple(results)), _on(pools.pop()))
        labels = claim.labels
        if is_gpu(claim.device_class):  # one without the label is for no queue
            labels = {**labels, QUEUE_LABEL: labels.get("kai.scheduler/queue", "")}
        made = _claim(claim.namespace, claim.name, asked, labels)
        return with_status(made, allocation, claim.reserved_for)

    def held(self, node: Node, tasks: Iterable[tuple[Job, Task]]) -> Iterator[ResourceClaim]:
        """The claims of tasks that are on a node at the start, with devices.

        Tasks with one GPU group have one GPU. Which it is follows from no rule: the names of
        groups are arbitrary.

        Raises:
            VectorError: the node does not have that many GPUs.
        """
        groups: dict[str, int] = {}
        taken = 0

        def take() -> int:
            nonlocal taken
            taken += 1
            if taken > node.gpus:
                raise VectorError(f"node {node.name} has more in use than its {node.gpus} GPUs")
            return taken - 1

        # Shares first: a group has a GPU before whole ones take what is left.
        for job, task in sorted(tasks, key=lambda each: not each[1].request.is_shared):
            claim = self.claim(job, task)
            if claim is None or task.state in ENDED:
                continue
            request = task.request
            if request.is_shared:
                count = request.shared_devices or 1
                own = tuple(f"own:{task.name}:{index}" for index in range(count))
                names = task.gpu_groups or own
                if len(names) != count:
                    raise VectorError(f"task {task.name}: {count} devices of {len(names)} groups")
                indices = [
                    groups[n] if n in groups else groups.setdefault(n, take()) for n in names
                ]
                consumed = {"memory": self._share(request)}
                results = [
                    DeviceResult(
                        "gpus",
                        DRIVER,
                        node.name,
                        f"gpu-{index}-share",
                        share_id=f"{task.name}-{index}",
                        consumed_capacity=consumed,
                    )
                    for index in indices
                ]
            else:
                results = [
                    DeviceResult("gpus", DRIVER, node.name, f"gpu-{take()}")
                    for _ in range(request.gpu)
                ]
            allocation = Allocation(DeviceAllocation(tuple(results)), _on(node.name))
            yield with_status(claim, allocation, (task.name,))

    def _share(self, request: Request) -> Quantity:
        """The memory of each of its devices. A fraction is one of the least GPU."""
        if request.gpu_memory_mib is not None:
            return _mib(request.gpu_memory_mib)
        return Quantity.of(round((request.gpu_fraction or 0) * self.gpu_mib) * _MIB)

    def _slices(self, node: Node) -> tuple[ResourceSlice, ResourceSlice]:
        pool = ResourcePool(node.name, 1, 2)
        memory = self.memory(node)
        one = {"whole": Counter(Quantity.of(1))}
        counters = tuple(CounterSet(f"gpu-{index}", one) for index in range(node.gpus))
        devices = (
            device
            for index in range(node.gpus)
            for device in _gpu(
                f"gpu-{index}", memory, DeviceCounterConsumption(f"gpu-{index}", one)
            )
        )
        nodes = OnNode(node.name)
        return (
            ResourceSlice(
                ObjectMeta(name=f"{node.name}-counters"),
                spec=ResourceSliceSpec(DRIVER, pool, nodes, shared_counters=counters),
            ),
            ResourceSlice(
                ObjectMeta(name=f"{node.name}-devices"),
                spec=ResourceSliceSpec(DRIVER, pool, nodes, tuple(devices)),
            ),
        )


def is_gpu(device_class: str) -> bool:
    """Whether claims of the class count as GPUs: the rule of the source."""
    return "gpu" in device_class.lower()


def with_status(
    claim: ResourceClaim, allocation: Allocation | None, users: Iterable[str]
) -> ResourceClaim:
    """The claim with this allocation, reserved for pods with these names."""
    reserved = tuple(ConsumerReference(resource="pods", name=name, uid=name) for name in users)
    return ResourceClaim(
        claim.metadata, spec=claim.spec, status=ResourceClaimStatus(allocation, reserved)
    )


def users_of(claim: ResourceClaim) -> tuple[str, ...]:
    """The names of the pods that the claim is reserved for."""
    return tuple(each.name for each in claim.status.reserved_for)


def _gpus_of(request: Request) -> bool:
    return request.gpu > 0 or request.is_shared


def _mib(amount: int) -> Quantity:
    return Quantity.of(amount * _MIB)


def _selector(expression: str) -> DeviceSelector:
    return DeviceSelector(CelSelector(expression))


def _class_of_type(name: str) -> DeviceClass:
    matches = f'device.driver == "{DRIVER}" && device.attributes["{DRIVER}"].type == "{name}"'
    return DeviceClass(ObjectMeta(name=name), DeviceClassSpec((_selector(matches),)))


def _gpu(name: str, memory: Quantity, whole: DeviceCounterConsumption) -> tuple[Device, Device]:
    steps = CapacityRange(min=_mib(1), step=_mib(1))
    policy = CapacityRequestPolicy(default=memory, valid=ValidRange(steps))
    return (
        Device(
            name,
            {"type": StringAttribute("gpu")},
            {"memory": DeviceCapacity(memory)},
            (whole,),
        ),
        Device(
            f"{name}-share",
            {"type": StringAttribute("share")},
            {"memory": DeviceCapacity(memory, policy)},
            (whole,),
            allow_multiple_allocations=True,
        ),
    )


def _claim(
    namespace: str, name: str, asked: ExactDeviceRequest, labels: Mapping[str, str]
) -> ResourceClaim:
    metadata = ObjectMeta(name=name, namespace=namespace, uid=f"{namespace}/{name}", labels=labels)
    requests = (DeviceRequest("gpus", Exactly(asked)),)
    return ResourceClaim(metadata, spec=ResourceClaimSpec(DeviceClaim(requests)))


def _on(node: str) -> NodeSelector:
    only = NodeSelectorRequirement("metadata.name", NodeSelectorOperator.IN, (node,))
    return NodeSelector((NodeSelectorTerm(match_fields=(only,)),))
