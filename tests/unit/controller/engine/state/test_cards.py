"""What is free of cards, what claims have of them, and what requests take at least, add up."""

import json
from pathlib import Path
from typing import Any

import pytest

from carina_dra.allocator.features import DEFAULT_FEATURES
from carina_dra.allocator.group import WHOLE
from carina_dra.allocator.node import Node
from carina_dra.allocator.request import check
from carina_dra.placement.bounds.supply import Supply
from carina_dra.placement.cluster.card import CardParts, PartKind
from carina_dra.placement.cluster.cluster import Cluster
from carina_dra.resource import ResourceClaim, ResourceSlice, decode
from controller.engine.state.cards import Cards, had
from tests.samples import golden_slices
from tests.samples.fleet import CLASSES, DRIVER, claim, give

_TYPE = f'device.attributes["{DRIVER}"].type == '
_PROFILE = f'device.attributes["{DRIVER}"].?profile.orValue("") == '
_SHARE = {"requests": {"memory": "20Gi", "cores": "30"}}
_MEMORY: PartKind = ("counter", "memory-slice-")
_SHARED_CORES: PartKind = ("capacity", "cores")
_TIMES = 8
_ASKED = [
    pytest.param({"count": 8, "selector": f'{_TYPE}"gpu"'}, id="all GPUs"),
    pytest.param({"selector": f'{_TYPE}"mig"'}, id="any partition"),
    pytest.param({"count": 2, "selector": f'{_PROFILE}"3g.40gb"'}, id="partitions"),
    pytest.param({"selector": f'{_TYPE}"share"', "capacity": _SHARE}, id="share"),
    pytest.param({"selector": f'{_TYPE}"monitor"'}, id="monitor"),
    pytest.param({}, id="any device"),
]


def _dgx() -> Cluster:
    """A node as the plugin publishes it; the first of its GPUs has its partitions."""
    nodes = Cluster()
    nodes.put_node(Node("node-1"))
    published = Path(golden_slices.__file__).parent / "golden" / "dgx-h100-slices.json"
    for index, one in enumerate(json.loads(published.read_text())):
        nodes.put_slice(decode(ResourceSlice, {**one, "metadata": {"name": f"slice-{index}"}}))
    return nodes


def _least(nodes: Cluster, asked: ResourceClaim) -> CardParts:
    (request,) = check(asked, CLASSES, DEFAULT_FEATURES).requests
    (wanted,) = request.alternatives
    found = Supply(nodes).least_parts(wanted, frozenset({DRIVER}))
    assert found is not None
    return found.times(asked.spec.devices.requests[0].wants.request.mode.count)  # type: ignore[union-attr]


@pytest.mark.parametrize("exactly", _ASKED)
def test_a_request_takes_no_less_than_was_said_and_leaves_no_more(exactly: dict[str, Any]) -> None:
    nodes = _dgx()
    cards = Cards(nodes)
    for _ in range(_TIMES):
        before, asked = cards.free("node-1"), claim(**exactly)
        least = _least(nodes, asked)
        if not give(nodes, asked):
            break
        after, allocation = cards.free("node-1"), nodes.allocation(asked.key)
        assert allocation is not None
        for kind in before.kinds:
            gain = had(cards.devices("node-1"), [allocation], kind)
            assert least.of(kind) <= gain
            assert least.of(kind) <= before.of(kind)
            assert before.of(kind) <= after.of(kind) + gain


def test_a_whole_gpu_takes_all_of_each_kind_of_counters() -> None:
    least = _least(_dgx(), claim(selector=f'{_TYPE}"gpu"'))
    assert least.of(_MEMORY) == WHOLE


def test_a_partition_takes_its_memory_slices() -> None:
    least = _least(_dgx(), claim(selector=f'{_PROFILE}"3g.40gb"'))
    assert least.of(_MEMORY) == WHOLE // 2


def test_a_share_takes_its_amounts_and_perhaps_no_counters() -> None:
    """The first share of a device has taken these for all."""
    least = _least(_dgx(), claim(selector=f'{_TYPE}"share"', capacity=_SHARE))
    assert least.of(_SHARED_CORES) == 3 * WHOLE // 10
    assert least.of(_MEMORY) == 0


def test_what_may_be_any_device_takes_nothing_for_sure() -> None:
    assert not any(_least(_dgx(), claim()).kinds.values())
