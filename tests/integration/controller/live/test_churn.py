"""Gangs come, end and are deleted while the controller is killed: none is lost, doubled or stuck.

At full length, this takes 4 to 5 minutes. CARINA_TEST_LENGTH=3.4 makes 1,000 gangs and 500 kills.
"""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

import pytest

from carina_dra.kube.api_resource import PODS, ApiResource, Scope
from carina_dra.kube.body import Body
from carina_dra.kube.client import MergePatch
from carina_dra.kube.errors import NotFound
from controller.names import POD_GROUPS
from simulation.kubernetes.process import Process
from tests.eventually import eventually
from tests.integration.controller.live.audit import Audit, audited, is_gated, left_behind
from tests.integration.controller.live.site import GPU_CLASS, Site, Team, kill
from tests.length import scaled, seed

GANGS, KILLS = scaled(300), scaled(150)
_REPLICA_SETS = ApiResource("apps", "v1", "replicasets", "ReplicaSet", Scope.NAMESPACED)
_NODES = [f"churn-{index}" for index in range(4)]
_GPUS = 8
_ALIVE = 12
"""Gangs at a time: more than there is room for, now and then."""
_BY_LIMITS = 0.4
"""The part of gangs that ask by an extended resource."""
_REST_EVERY = 10
"""Kills after which the cluster is let come to rest."""
_RESTS_WITHIN = 60.0
_ACTS_WITHIN = 1.0
"""Seconds that the controller has for the writes after which it is killed, if it makes them."""


@dataclass(frozen=True, slots=True)
class Gang:
    """Pods that start together; a ReplicaSet makes others in place of those that are evicted."""

    team: Team
    name: str
    pods: int
    gpus: int
    priority_class: str
    by_limits: bool
    """Whether it asks by an extended resource, so that kube-scheduler chooses its devices."""

    def create(self) -> None:
        self.team.group(self.name, minCount=self.pods)
        labels = {**self.team.labels(self.name), "gang": self.name}
        template = {
            "metadata": {"labels": labels},
            "spec": self._pod_spec(),
        }
        self.team.client.create(
            _REPLICA_SETS,
            {
                "apiVersion": _REPLICA_SETS.api_version,
                "kind": _REPLICA_SETS.kind,
                "metadata": {"name": self.name, "namespace": self.team.namespace},
                "spec": {
                    "replicas": self.pods,
                    "selector": {"matchLabels": {"gang": self.name}},
                    "template": template,
                },
            },
        )

    def _pod_spec(self) -> Body:
        if not self.by_limits:
            return self.team.pod_spec(self.gpus, priorityClassName=self.priority_class)
        resources = {"limits": {"nvidia.com/gpu": str(self.gpus)}, "requests": {"cpu": "100m"}}
        container = {"name": "main", "image": "none", "resources": resources}
        return self.team.pod_spec(0, priorityClassName=self.priority_class, containers=[container])

    def end(self) -> None:
        """Has its pods succeed, and removes it."""
        for pod in self.members():
            if pod["spec"].get("nodeName"):
                with suppress(NotFound):
                    self.team.client.patch(
                        PODS,
                        pod["metadata"]["name"],
                        MergePatch({"status": {"phase": "Succeeded"}}),
                        namespace=self.team.namespace,
                        subresource="status",
                    )
        self.delete()

    def delete(self) -> None:
        """Removes it; the garbage collector removes its pods."""
        self.team.client.delete(_REPLICA_SETS, self.name, namespace=self.team.namespace)
        self.team.client.delete(POD_GROUPS, self.name, namespace=self.team.namespace)

    def members(self) -> list[Body]:
        """Its pods that are not being deleted and have not ended."""
        return [
            pod
            for pod in self.team.pods().values()
            if pod["metadata"]["labels"].get("gang") == self.name
            and not pod["metadata"].get("deletionTimestamp")
            and pod["status"].get("phase") not in {"Succeeded", "Failed"}
        ]

    def bound(self) -> int:
        """How many of its pods have a node."""
        return sum(1 for pod in self.members() if pod["spec"].get("nodeName"))

    def nodes(self) -> list[str]:
        return [name for pod in self.members() if (name := pod["spec"].get("nodeName"))]

    def is_gated(self) -> bool:
        """Whether all of its pods exist, and wait."""
        members = self.members()
        return len(members) == self.pods and all(map(is_gated, members))


class Churn:
    """Gangs of two queues, and the controller that is killed."""

    def __init__(self, site: Site, teams: list[Team], classes: list[str], audit: Audit) -> None:
        self._site = site
        self._teams = teams
        self._classes = classes
        self._audit = audit
        self._draw = random.Random(seed())
        self._created = 0
        self.gangs: list[Gang] = []
        self.controller: Process = site.start_controller()

    def run(self) -> None:
        """Makes all the gangs, with all the kills in between."""
        kills = 0
        while self._created < GANGS or kills < KILLS:
            self._change()
            if kills * GANGS <= self._created * KILLS and kills < KILLS:
                self._kill()
                kills += 1
                if kills % _REST_EVERY == 0:
                    self.await_rest()

    def drain(self) -> None:
        """Ends gangs until none is left: each of them runs at some time."""
        while self.gangs:
            running = eventually(
                lambda: [gang for gang in self.gangs if gang.bound() == gang.pods],
                within=_RESTS_WITHIN,
            )
            for gang in running:
                gang.end()
                self.gangs.remove(gang)

    def await_rest(self) -> None:
        """Waits until what can run runs, whole, and nothing is left behind.

        The message names what is wrong at the end.
        """
        deadline = time.monotonic() + _RESTS_WITHIN
        while wrong := self._wrong():
            assert time.monotonic() < deadline, wrong

    def _wrong(self) -> list[str]:
        lines = [line for team in self._teams for line in left_behind(team.pods(), team.claims())]
        nodes = [name for gang in self.gangs for name in gang.nodes() for _ in range(gang.gpus)]
        free = {name: _GPUS - nodes.count(name) for name in _NODES}
        for gang in self.gangs:
            bound = gang.bound()
            if bound not in {0, gang.pods}:
                lines.append(f"{gang.name} has {bound} of {gang.pods} pods")
            if not bound and not gang.is_gated():
                lines.append(f"{gang.name} has neither gates nor nodes")
            if not bound and sum(of // gang.gpus for of in free.values()) >= gang.pods:
                lines.append(f"{gang.name} waits, although it fits: {free}")
        return lines

    def _change(self) -> None:
        draw = self._draw
        may_create = self._created < GANGS and len(self.gangs) < _ALIVE
        if may_create and (not self.gangs or draw.random() < 0.6):
            self._created += 1
            gang = Gang(
                draw.choice(self._teams),
                f"gang-{self._created}",
                draw.randint(1, 4),
                draw.randint(1, 4),
                draw.choice(self._classes),
                by_limits=draw.random() < _BY_LIMITS,
            )
            gang.create()
            self.gangs.append(gang)
        elif self.gangs:
            gang = self.gangs.pop(draw.randrange(len(self.gangs)))
            draw.choice([gang.end, gang.delete])()

    def _kill(self) -> None:
        """Kills the controller while it writes, and starts another."""
        seen, number = self._audit.versions, self._draw.randint(0, 12)
        with suppress(AssertionError):  # it had no more to do
            eventually(lambda: self._audit.versions >= seen + number, within=_ACTS_WITHIN)
        kill(self.controller)
        self.controller = self._site.start_controller()


@pytest.fixture
def nodes(site: Site) -> Iterator[None]:
    """Nodes of eight GPUs, gone at the end however it comes."""
    site.add_nodes(*_NODES, gpus=_GPUS)
    yield
    site.remove_nodes(*_NODES)


@pytest.mark.timeout(300 + 20 * KILLS)
def test_no_gang_is_lost_doubled_or_stuck(
    nodes: None, site: Site, new_team: Callable[..., Team]
) -> None:
    quota = len(_NODES) * _GPUS // 2
    teams = [new_team(resources=[{"deviceClass": GPU_CLASS, "quota": quota}]) for _ in range(2)]
    classes = []
    for name, value in (("churn-low", 0), ("churn-high", 1000)):
        body = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
        site.cluster.apply({**body, "metadata": {"name": name}, "value": value})
        classes.append(name)
    with audited(site.client) as audit:
        churn = Churn(site, teams, classes, audit)
        try:
            churn.run()
            churn.await_rest()
            churn.drain()
            churn.await_rest()
            assert not any(team.allocated() for team in teams)
        finally:
            churn.controller.stop()
