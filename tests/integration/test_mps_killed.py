"""Killed with SIGKILL before every step of a claim with an MPS daemon, the plugin goes on there.

carina-sharing, the daemons and their cgroups are real. The next plugin ends in the same state, and
the daemon of another claim goes on throughout.

Every fourth step is tried, others with other seeds; CARINA_TEST_LENGTH=1 tries all.
"""

from collections.abc import Iterator
from itertools import count
from typing import Final, Literal

import grpc
import pytest

from tests.eventually import eventually
from tests.integration.sharing_node import DEMANDS_MPS, WITHIN, Part, SharingNode, sharing_node
from tests.integration.test_shares import amounts
from tests.length import scaled, seed

_EVERY: Final = 4 // min(scaled(4), 4)
_BESIDE, _NEW = "beside", "new"
_FEWEST: Final = 4
"""Steps that there are at least."""
_CHECKPOINT: Final = "checkpoint.jsonl"
_ENDS: Final[tuple[tuple[Part, ...], ...]] = (
    ("sharing",),
    ("plugin",),
    ("sharing", "plugin"),
    ("plugin", "sharing"),
)
"""What is killed at once, in this order, and started again in the reverse order."""
Call = Literal["prepare", "unprepare"]


@pytest.fixture
def node() -> Iterator[SharingNode]:
    with sharing_node() as made:
        made.start("sharing")
        made.start("plugin")
        for claim in (_BESIDE, _NEW):
            made.claims.add_pod(claim, capacity=amounts("10Gi", 10), config=DEMANDS_MPS)
        assert not made.claims.prepare(_BESIDE).error
        yield made


def succeed(node: SharingNode, call: Call) -> None:
    answer = node.claims.prepare(_NEW) if call == "prepare" else node.claims.unprepare(_NEW)
    assert not answer.error


def killed_in(node: SharingNode, number: int, call: Call) -> bool:
    """Calls a plugin that is killed before a step; whether it was killed."""
    uid = node.claims.claim(_NEW)["metadata"]["uid"]
    node.kill("plugin")
    node.start_killed(number, [uid, _CHECKPOINT])
    try:
        succeed(node, call)
    except grpc.RpcError:
        assert node.running["plugin"].wait() == -9, node.host.log.read_text()
        return True
    return False


def assert_has(node: SharingNode, *claims: str) -> None:
    """These claims are prepared, with a daemon for each that is ready, and no others."""
    prepared = {name.removesuffix(".json").rpartition("_")[2] for name in node.prepared()}
    assert prepared == {node.claims.claim(name)["metadata"]["uid"] for name in claims}
    eventually(
        lambda: (
            {name: daemon.state for name, daemon in node.daemons().items()}
            == dict.fromkeys(claims, "ready")
        ),
        within=WITHIN,
    )
    assert {daemon.restarts for daemon in node.daemons().values()} == {0}
    assert {name for name in (_BESIDE, _NEW) if node.leader(name)} == set(claims)


@pytest.mark.parametrize(
    ("call", "back", "claims"),
    [("prepare", "unprepare", (_BESIDE, _NEW)), ("unprepare", "prepare", (_BESIDE,))],
    ids=["prepare", "unprepare"],
)
def test_killed_at_each_step(
    node: SharingNode, call: Call, back: Call, claims: tuple[str, ...]
) -> None:
    beside = node.leader(_BESIDE)
    for number in count(seed() % _EVERY, _EVERY):
        succeed(node, back)
        was_killed = killed_in(node, number, call)
        if was_killed:
            node.kill("plugin")
            node.start("plugin")
            succeed(node, call)
        assert_has(node, *claims)
        assert node.leader(_BESIDE) == beside, "a daemon beside it goes on"
        if not was_killed:
            break
    assert number >= _FEWEST


def test_daemons_outlast_kills_of_both_processes_in_any_order(node: SharingNode) -> None:
    assert not node.claims.prepare(_NEW).error
    before = node.prepared()
    leaders = [node.leader(name) for name in (_BESIDE, _NEW)]
    for killed in _ENDS:
        for part in killed:
            node.kill(part)
        for part in reversed(killed):
            node.start(part)
        assert_has(node, _BESIDE, _NEW)
        assert not node.claims.prepare(_NEW).error
        assert [node.leader(name) for name in (_BESIDE, _NEW)] == leaders
        assert node.prepared() == before
