"""Small clusters for tests of decisions: pods that need cpu only, in queues that share it."""

from carina_dra.allocator.node import Node
from controller.engine.decide.cycle import Engine
from controller.engine.model.group import Group, PodSet
from controller.engine.model.node import ClusterNode
from controller.engine.model.plan import Plan
from controller.engine.model.pod import Pending, Placed, Pod, PodNeeds, PodState
from controller.engine.model.queue import Entitlement, Queue
from controller.engine.model.resource import Cpu
from controller.engine.model.snapshot import Snapshot
from controller.engine.state.state import State

NOW = 1_000.0


def node(name: str, cpu: int) -> ClusterNode:
    """A node with so many cores, which has its name as a label."""
    return ClusterNode(Node(name, {"name": name}), cpu=cpu * 1_000, memory=1 << 30)


def queue(name: str, *, limit: int | None = None, quota: int | None = 0) -> Queue:
    """A queue with a quota and a limit in cores."""
    most, least = (None if cores is None else cores * 1_000 for cores in (limit, quota))
    return Queue(name, entitlements={Cpu(): Entitlement(least, most)})


def group(
    name: str,
    of: str = "queue",
    *,
    least: int = 1,
    priority: int = 0,
    age: float = 0,
    preemptible: bool = True,
) -> Group:
    """A group of so many pods at least, with an age in seconds."""
    return Group(
        f"team/{name}",
        of,
        PodSet("", least),
        priority=priority,
        preemptible=preemptible,
        created=NOW - age,
    )


def pod(
    of: Group, cpu: int, *, at: str | None = None, only: str | None = None, rank: int = 0
) -> Pod:
    """A pod of a group that needs so many cores, runs `at` a node, or may be on one `only`."""
    state: PodState = Pending() if at is None else Placed(at)
    selector = () if only is None else (("name", only),)
    needs = PodNeeds(cpu=cpu * 1_000, node_selector=selector)
    return Pod(f"{of.key}-{rank}", needs, state, group=of.key, rank=rank)


def snapshot(
    *of: ClusterNode | Queue | Group | Pod,
) -> Snapshot:
    """A cluster of these objects, with a queue named `queue` if there is none."""
    queues = tuple(one for one in of if isinstance(one, Queue))
    return Snapshot(
        now=NOW,
        nodes=tuple(one for one in of if isinstance(one, ClusterNode)),
        queues=queues or (queue("queue"),),
        groups=tuple(one for one in of if isinstance(one, Group)),
        pods=tuple(one for one in of if isinstance(one, Pod)),
    )


class Cluster:
    """A state with an engine that remembers."""

    def __init__(self, *of: ClusterNode | Queue | Group | Pod) -> None:
        self.state = State(snapshot(*of))
        self._engine = Engine(self.state)

    def decide(self) -> Plan:
        """The next plan, which the state remembers, but does not follow."""
        plan = self._engine.decide()
        self.state.memory = plan.memory
        return plan


def places(plan: Plan) -> dict[str, str]:
    """The nodes of the pods that start, by pod."""
    return {start.pod: start.node for start in plan.starts}
