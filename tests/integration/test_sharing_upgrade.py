"""Plugin and carina-sharing are updated one after the other, in either order, and back.

Both are the real processes of two commits. Shares that one version has prepared stay prepared, the
processes of their pods go on and are seen, and nothing of them is written anew.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from tests.eventually import eventually
from tests.integration.old_tree import tree_of
from tests.integration.sharing_node import DEMANDS_MPS, WITHIN, Part, SharingNode, sharing_node
from tests.integration.test_shares import amounts

_OLD: Final = "77fd880f"
"""The commit before MPS daemons and processes that are ended."""
_SHARES: Final = {"train": 1000, "serve": 2000}
"""The pods with shares of a GPU, and the MiB that their processes use of it."""


@pytest.fixture
def node() -> Iterator[SharingNode]:
    with sharing_node() as made:
        yield made


@pytest.fixture(scope="module")
def old_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tree_of(_OLD, tmp_path_factory.mktemp("old"))


@pytest.mark.parametrize("order", [("plugin", "sharing"), ("sharing", "plugin")], ids=" first".join)
def test_shares_outlast_updates_in_any_order_and_back(
    node: SharingNode, old_tree: Path, order: tuple[Part, Part]
) -> None:
    for part in order:
        node.update(part, old_tree)
    sharing = node.claims
    for pod, mib in _SHARES.items():
        sharing.add_pod(pod, capacity=amounts("30Gi", 40))
        assert not sharing.prepare(pod).error
        node.work(pod, mib)
    eventually(lambda: node.used() == _SHARES, within=WITHIN)
    before = node.prepared()
    assert len(before) == len(_SHARES)

    for tree in (None, old_tree, None):
        for part in order:
            node.update(part, tree)
            eventually(lambda: node.used() == _SHARES, within=WITHIN)
            assert not any(sharing.prepare(pod).error for pod in _SHARES)
            assert node.prepared() == before
            assert all(worker.poll() is None for worker in node.workers)

    for pod in _SHARES:
        assert not sharing.unprepare(pod).error
    assert node.prepared() == {}
    eventually(lambda: node.used() == {}, within=WITHIN)


def test_a_demand_for_mps_waits_for_carina_sharing_and_outlasts_its_way_back(
    node: SharingNode, old_tree: Path
) -> None:
    node.start("sharing", old_tree)
    node.start("plugin")
    claims = node.claims
    claims.add_pod("train", capacity=amounts("10Gi", 10), config=DEMANDS_MPS)
    assert "demands enforcement by mps for memory" in claims.prepare("train").error
    assert node.prepared() == {}

    node.update("sharing")
    eventually(lambda: not claims.prepare("train").error, within=WITHIN)
    before, leader = node.prepared(), node.leader("train")

    node.update("sharing", old_tree)
    # A container that is about to start would not be kept within its share if the daemon died.
    eventually(lambda: "demands enforcement by mps" in claims.prepare("train").error)
    assert (node.prepared(), node.leader("train")) == (before, leader)

    node.update("sharing")
    eventually(lambda: {seen.state for seen in node.daemons().values()} == {"ready"}, within=WITHIN)
    eventually(lambda: not claims.prepare("train").error, within=WITHIN)
    assert (node.prepared(), node.leader("train")) == (before, leader)

    assert not claims.unprepare("train").error
    eventually(lambda: node.leader("train") is None, within=WITHIN)


def test_an_mps_daemon_outlasts_an_earlier_plugin(node: SharingNode, old_tree: Path) -> None:
    node.start("sharing")
    node.start("plugin")
    claims = node.claims
    claims.add_pod("train", capacity=amounts("10Gi", 10), config=DEMANDS_MPS)
    eventually(lambda: not claims.prepare("train").error, within=WITHIN)
    before, leader = node.prepared(), node.leader("train")

    for tree, beside in ((old_tree, "earlier"), (None, "later")):
        node.update("plugin", tree)
        claims.add_pod(beside, capacity=amounts("10Gi", 10))
        assert not claims.prepare(beside).error
        eventually(partial(node.watches, beside), within=WITHIN)
        node.update("sharing")
        eventually(lambda: node.daemons()["train"].state == "ready", within=WITHIN)
        assert node.leader("train") == leader
        assert before.items() <= node.prepared().items()

    assert not claims.unprepare("train").error
    eventually(lambda: node.leader("train") is None, within=WITHIN)
