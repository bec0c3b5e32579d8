"""Reservations of groups that wait for room, and what must not hold up others."""

from typing import Any

from controller.decide.cycle import Engine
from controller.model.plan import Plan
from controller.model.snapshot import Snapshot
from controller.state.state import State
from tests.unit.controller.decide.gpu_cluster import (
    CLASS,
    claim,
    gpus,
    group,
    node,
    queue,
    running,
    waiting,
)

_ALL = tuple(f"n1/g{index}" for index in range(8))


class Cluster:
    """Two nodes of eight GPUs. One is in use until 1100; `q/big` asks for both, and reserves."""

    def __init__(self, **fields: Any) -> None:
        defaults = {
            "now": 1000,
            "nodes": (node(), node("n2")),
            "slices": (gpus(), gpus("n2")),
            "classes": (CLASS,),
            "queues": (queue("q", reserves=True), queue("other")),
            "claims": (claim("q/run", 8, has=_ALL), claim("q/b0", 8), claim("q/b1", 8)),
            "groups": (
                group("q/run", started=1000, run_time=100, preemptible=False),
                group("q/big", least=2),
            ),
            "pods": (
                running("q/run-0", "q/run", "q/run"),
                waiting("q/big-0", "q/big", "q/b0"),
                waiting("q/big-1", "q/big", "q/b1"),
            ),
        }
        self.state = State(Snapshot(**{**defaults, **fields}))
        self._engine = Engine(self.state)

    def cycle(self) -> Plan:
        """Runs a cycle that the next one remembers."""
        plan = self._engine.decide()
        self.state.memory = plan.memory
        return plan

    def settle(self, cycles: int = 4) -> Plan:
        """Runs cycles as long as the last one asks for another one now."""
        for _ in range(cycles):
            plan = self.cycle()
            if plan.wake is None or plan.wake > self.state.now:
                return plan
            self.state.advance(self.state.now)
        raise AssertionError("the cycles do not settle")

    def ask(self, key: str, count: int, of_queue: str = "other", **fields: Any) -> None:
        """Has a group of one pod ask for GPUs."""
        self.state.put_group(group(key, of_queue, **fields))
        self.state.put_claim(claim(key, count))
        self.state.put_pod(waiting(f"{key}-0", key, key))


def test_a_reservation_keeps_out_what_says_not_how_long_it_runs() -> None:
    cluster = Cluster()

    assert cluster.cycle().memory.reservations == {"q/big": 1100}
    cluster.ask("other/long", 4)

    assert not cluster.settle().starts


def test_a_group_that_cannot_start_any_more_holds_up_nobody() -> None:
    cluster = Cluster()
    cluster.cycle()
    cluster.ask("other/long", 4)
    cluster.settle()

    cluster.state.remove_claim("q/b1")

    assert [start.pod for start in cluster.settle().starts] == ["other/long-0"]


def test_a_reservation_ends_with_the_queue_or_its_right_to_reserve() -> None:
    for queues in ((queue("other"),), (queue("q"), queue("other"))):
        cluster = Cluster()
        cluster.cycle()

        cluster.state.put_queues(queues)
        cluster.ask("other/long", 4)

        assert [start.pod for start in cluster.settle().starts] == ["other/long-0"]


def test_two_groups_with_reservations_do_not_wait_for_each_other() -> None:
    cluster = Cluster(queues=(queue("q", reserves=True), queue("other", reserves=True)))
    cluster.ask("other/big", 8)
    cluster.state.put_claim(claim("q/long", 8, has=tuple(f"n2/g{index}" for index in range(8))))
    cluster.state.put_group(group("q/long", started=1000, run_time=100, preemptible=False))
    cluster.state.put_pod(running("q/long-0", "q/long", "q/long", on="n2"))
    assert set(cluster.settle().memory.reservations) == {"q/big", "other/big"}

    for name in ("run", "long"):
        cluster.state.remove_pod(f"q/{name}-0")
        cluster.state.remove_claim(f"q/{name}")

    assert cluster.settle().starts


def test_who_was_behind_a_reservation_is_asked_again_when_it_has_ended() -> None:
    cluster = Cluster()
    cluster.cycle()
    cluster.ask("other/long", 4)
    assert cluster.settle().waiting["other/long"]

    cluster.state.remove_pod("q/big-0")
    cluster.state.remove_pod("q/big-1")

    assert [start.pod for start in cluster.settle().starts] == ["other/long-0"]
