"""Random snapshots and plans, for hypothesis.

They are made out of the fields of their types, so that no field is forgotten. Names and numbers are
any that a file can have; the objects of the DRA API are samples.
"""

import math
import types
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from enum import Enum
from fractions import Fraction
from functools import cache
from operator import attrgetter
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from carina_dra.allocator.node import Node
from carina_dra.allocator.preference import Order, Policy
from carina_dra.placement.cluster.gpu import GPU
from carina_dra.resource import (
    Allocation,
    DeviceClass,
    DeviceTaintRule,
    NodeSelector,
    NodeSelectorOperator,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    ResourceClaim,
    ResourceSlice,
    decode,
)
from controller.engine.model.group import Group
from controller.engine.model.node import ClusterNode, Taint
from controller.engine.model.plan import Plan
from controller.engine.model.pod import Pod, PodNeeds
from controller.engine.model.queue import Entitlement, Hold, Queue, RespectBudgets
from controller.engine.model.resource import CapacityOf, Cpu, DevicesOf, Gpus, Memory, Pods
from controller.engine.model.snapshot import Snapshot
from tests.samples.resources import EXAMPLES, example

_words = st.text("abz-./é1", min_size=1, max_size=4)
_names = st.text("abz", min_size=1, max_size=4)
_numbers = st.integers(min_value=-(2**63), max_value=2**63 - 1)
_amounts = st.integers(min_value=0, max_value=2**63 - 1)
_seconds = st.integers(0, 10**9).map(lambda milliseconds: milliseconds / 1000)
_weights = st.fractions(min_value=0, max_denominator=1000)


_SELECTOR: Final = NodeSelector(
    (
        NodeSelectorTerm(
            (NodeSelectorRequirement("zone", NodeSelectorOperator.IN, ("a", "b")),),
        ),
    )
)


def _objects(kind: Any) -> SearchStrategy[tuple[Any, ...]]:
    """Objects of the DRA API with different names."""
    bodies = (example(name) for name in EXAMPLES)
    samples = [decode(kind, body) for body in bodies if body["kind"] == kind.KIND]
    named = st.builds(
        lambda sample, name: replace(sample, metadata=replace(sample.metadata, name=name)),
        st.sampled_from(samples),
        _names,
    )
    return _different(named, lambda each: each.metadata.key)


def _different(
    of: SearchStrategy[Any], key: Callable[[Any], object]
) -> SearchStrategy[tuple[Any, ...]]:
    return st.lists(of, max_size=2, unique_by=key).map(tuple)


def _allocation() -> Allocation:
    allocation = decode(ResourceClaim, example("claim-allocated")).status.allocation
    assert allocation is not None
    return allocation


@cache
def _leaves() -> Mapping[Any, SearchStrategy[Any]]:
    return {
        str: _words,
        int: _numbers,
        bool: st.booleans(),
        float: st.floats(-1e300, 1e300) | st.just(math.inf),
        Fraction: st.fractions(max_denominator=10**6),
        Policy: st.builds(Policy, st.sampled_from(Order), st.sampled_from([None, *Order])),
        Allocation: st.sampled_from([Allocation(), _allocation()]),
        NodeSelector: st.just(_SELECTOR),
    }


def values(kind: Any) -> SearchStrategy[Any]:
    """Values of a type, as fields are annotated with it."""
    if kind in _leaves():
        return _leaves()[kind]
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is tuple and arguments[-1] is ...:
        return st.lists(values(arguments[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values, arguments))
    if origin is frozenset:
        return st.frozensets(values(arguments[0]), max_size=2)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return st.dictionaries(values(arguments[0]), values(arguments[1]), max_size=2)
    if origin in (Union, types.UnionType):
        return st.one_of(*map(values, arguments))
    if kind is types.NoneType:
        return st.none()
    if isinstance(kind, type) and issubclass(kind, Enum):
        return st.sampled_from(kind)
    hints = get_type_hints(kind)
    if kind is PodNeeds:
        positive = {"cpu": _amounts, "memory": _amounts}
        rest = {name: values(hint) for name, hint in hints.items() if name not in positive}
        return st.builds(PodNeeds, **positive, **rest)
    return st.deferred(
        lambda: st.builds(kind, **{field.name: values(hints[field.name]) for field in fields(kind)})
    )


_resources = st.one_of(
    st.builds(DevicesOf, _names),
    st.builds(CapacityOf, _names.map("gpu.example.com/{}".format)),
    st.sampled_from((Cpu(), Memory(), Pods())),
)
entitlements = st.builds(Entitlement, st.none() | _amounts, st.none() | _amounts, _weights)
_gpus = st.none() | st.integers(0, 10**6).map((GPU // 1000).__mul__)
_entitlements = st.builds(
    lambda gpus, others: {**gpus, **others},
    st.dictionaries(
        st.builds(Gpus, st.just("") | _names), st.builds(Entitlement, _gpus, _gpus, _weights)
    ),
    st.dictionaries(_resources, entitlements, max_size=3),
)
queues = st.builds(
    Queue,
    name=_names,
    parent=st.none() | _names,
    priority=st.integers(-(2**31), 2**31 - 1),
    created=st.integers(0, 2**31).map(float),
    entitlements=_entitlements,
    preempt_min_runtime=st.none() | _seconds,
    reclaim_min_runtime=st.none() | _seconds,
    eviction_grace=st.none() | _seconds,
    respect_budgets=st.none() | st.sampled_from(RespectBudgets),
    placement=st.none() | values(Policy),
    reserves=st.booleans(),
    deleted=st.none() | st.integers(0, 2**31).map(float),
    hold=st.sampled_from(Hold),
)
"""Amounts are those that a quantity can be, and times are in the seconds of meta/v1 Time."""

nodes = st.builds(
    ClusterNode,
    node=st.builds(
        Node,
        _names,
        st.dictionaries(_words, _words, max_size=2),
        st.frozensets(_words, max_size=2),
    ),
    cpu=_amounts,
    memory=_amounts,
    pods=_amounts,
    extended=st.dictionaries(_names.map("example.com/{}".format), _amounts, max_size=2),
    taints=values(tuple[Taint, ...]),
    unschedulable=st.booleans(),
)
plans: SearchStrategy[Plan] = values(Plan)


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    """Snapshots whose objects have different names."""
    fixed = {
        "nodes": _different(nodes, attrgetter("name")),
        "slices": _objects(ResourceSlice),
        "classes": _objects(DeviceClass),
        "rules": _objects(DeviceTaintRule),
        "claims": _objects(ResourceClaim),
        "queues": _different(queues, attrgetter("name")),
        "groups": _different(values(Group), attrgetter("key")),
        "pods": _different(values(Pod), attrgetter("key")),
    }
    hints = get_type_hints(Snapshot)
    return Snapshot(
        **{
            field.name: draw(
                fixed[field.name] if field.name in fixed else values(hints[field.name])
            )
            for field in fields(Snapshot)
        }
    )
