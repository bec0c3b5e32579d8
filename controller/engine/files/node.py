"""A core/v1 Node as the engine sees it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, assert_never

from carina_dra.allocator.node import Node
from carina_dra.node_keys import EVICT_ALL, NodeKeys
from carina_dra.quantity import Format, Quantity
from carina_dra.resource import JsonObject, ObjectMeta, encode
from carina_dra.resource.codec import codec
from carina_dra.resource.errors import BadValueError
from carina_dra.resource.schema import Struct
from controller.engine.model.node import ClusterNode, NodeRelease, Taint
from controller.engine.model.snapshot import EngineSettings

_PODS: Final = 110
"""How many pods a node takes that does not say so: the kubelet's default."""
_OWN: Final = frozenset({"cpu", "memory", "pods"})
"""What is allocatable and has a field of its own."""
_DRIVER: Final = EngineSettings().driver
_KEYS: Final = NodeKeys(_DRIVER)
_PHASES: Final = frozenset({"draining", "released"})
"""Of a release, as the plugin names them, in which the node is to be empty."""


@dataclass(frozen=True, slots=True)
class _Taint(Struct):
    key: str
    value: str = ""
    effect: str = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class _Spec(Struct):
    unschedulable: bool = False
    taints: tuple[_Taint, ...] = ()


@dataclass(frozen=True, slots=True)
class _Condition(Struct):
    type: str
    status: str


@dataclass(frozen=True, slots=True)
class _Status(Struct):
    allocatable: Mapping[str, Quantity] = field(default_factory=dict)
    conditions: tuple[_Condition, ...] = ()
    declared_features: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Node(Struct):
    API_VERSION: ClassVar[str] = "v1"
    KIND: ClassVar[str] = "Node"

    metadata: ObjectMeta
    spec: _Spec = field(default_factory=_Spec)
    status: _Status = field(default_factory=_Status)


def read_node(body: JsonObject, driver: str = _DRIVER) -> ClusterNode:
    """Reads a Node. What the engine does not need of it is free.

    driver: the name of the driver whose devices an annotation of the node may release.

    A node that is released, or whose condition Ready does not hold, counts as unschedulable. What
    is allocatable besides cpu, memory and pods is all in `extended`, ephemeral storage and huge
    pages too.

    Raises:
        BadValueError: the body is not a Node, or says nothing of its cpu and memory.
    """
    node: _Node = codec(_Node).read(body)
    allocatable = node.status.allocatable
    for name in ("cpu", "memory"):
        if name not in allocatable:
            raise BadValueError(f"lacks status.allocatable.{name}")
    ready = [condition.status for condition in node.status.conditions if condition.type == "Ready"]
    release = _release(node.metadata.annotations, driver)
    is_ready = ready in ([], ["True"])
    return ClusterNode(
        node=Node(
            node.metadata.name, node.metadata.labels, frozenset(node.status.declared_features)
        ),
        cpu=allocatable["cpu"].milli_value(),
        memory=allocatable["memory"].value(),
        pods=allocatable["pods"].value() if "pods" in allocatable else _PODS,
        extended={
            name: quantity.value() for name, quantity in allocatable.items() if name not in _OWN
        },
        taints=tuple(Taint(taint.key, taint.value, taint.effect) for taint in node.spec.taints),
        unschedulable=(node.spec.unschedulable or not is_ready or release is not NodeRelease.NONE),
        release=release,
    )


def _release(annotations: Mapping[str, str], driver: str) -> NodeRelease:
    """Whether somebody asks for a release, or the plugin says that it is doing one.

    NVIDIA's GPU Operator asks for it by labels that the plugin knows.
    """
    keys = NodeKeys(driver)
    is_asked = keys.release in annotations
    if not is_asked and annotations.get(keys.release_phase) not in _PHASES:
        return NodeRelease.NONE
    evicts_all = annotations.get(keys.release_evict) == EVICT_ALL
    return NodeRelease.ALL if evicts_all else NodeRelease.QUEUES


def write_node(node: ClusterNode) -> dict[str, Any]:
    """Writes what `read_node` reads."""
    numbers = {"pods": node.pods, **node.extended}
    return encode(
        _Node(
            ObjectMeta(
                name=node.name, labels=node.node.labels, annotations=_annotations(node.release)
            ),
            _Spec(
                node.unschedulable,
                tuple(_Taint(taint.key, taint.value, effect=taint.effect) for taint in node.taints),
            ),
            _Status(
                {
                    "cpu": Quantity(node.cpu * 10**6, Format.DECIMAL_SI),
                    "memory": Quantity.of(node.memory),
                    **{
                        name: Quantity.of(number, Format.DECIMAL_SI)
                        for name, number in numbers.items()
                    },
                },
                declared_features=tuple(sorted(node.node.declared_features)),
            ),
        )
    )


def _annotations(release: NodeRelease) -> Mapping[str, str]:
    match release:
        case NodeRelease.NONE:
            return {}
        case NodeRelease.QUEUES:
            return {_KEYS.release: ""}
        case NodeRelease.ALL:
            return {_KEYS.release: "", _KEYS.release_evict: EVICT_ALL}
    assert_never(release)
