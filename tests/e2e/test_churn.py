"""Every way of using the GPUs of one node at once, while pods come and go and the plugin is killed.

Scheduler, kubelet and containerd are the real ones. Whenever the node comes to rest, the GPUs have
what the allocated claims say, and nothing else.

At full length, this is a tenth of 500 claims and 200 kills: CARINA_TEST_LENGTH=10 makes them all.
"""

import random
import re
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from kubelet_plugin.claims.checkpoint import parse_checkpoint
from simulation.kubernetes.process import wait_for
from simulation.nvml.node import SimulatedNode
from tests.e2e.plugin import Plugin
from tests.e2e.workloads import RETRY_S, Object, Workloads, request
from tests.length import scaled, seed

CLAIMS, KILLS = scaled(50), scaled(20)
_ALIVE = 14
"""Pods at a time: more than the node has room for, now and then."""
_REST_EVERY = 5
"""Kills after which the node is let come to rest."""
_REST_S = 180.0
"""Seconds in which the kubelet has done what it failed to do, and tried again less and less."""
_MONITOR = "monitor.gpu.carina.dev"
_PARTITION = re.compile(r"gpu-(?P<gpu>\d+)-mig-.*-(?P<start>\d+)$")
_SHARE = re.compile(r"gpu-(?P<gpu>\d+)-share$")
_WHOLE = re.compile(r"gpu-(?P<gpu>\d+)$")


def _amount(device_class: str, **amounts: str) -> Object:
    return {"deviceClassName": device_class, "capacity": {"requests": amounts}}


_ONE_G = _amount("mig.gpu.carina.dev", memory="10Gi")
_THREE_G = _amount("mig.gpu.carina.dev", memory="60Gi")
_SHARE_OF = _amount("share.gpu.carina.dev", memory="30Gi", cores="40")
_TEMPLATES: Mapping[str, Sequence[Object]] = {
    "whole": [request()],
    "one-g": [request(**_ONE_G)],
    "three-g": [request(**_THREE_G)],
    "share": [request(**_SHARE_OF)],
    "either": [
        {
            "name": "gpu",
            "firstAvailable": [{"name": "part", **_ONE_G}, {"name": "share", **_SHARE_OF}],
        }
    ],
    "both": [request("part", **_ONE_G), request("share", **_SHARE_OF)],
    "monitor": [request(deviceClassName=_MONITOR, allocationMode="All", adminAccess=True)],
}


@dataclass(slots=True)
class Churn:
    """Pods with claims of every kind, made and deleted at random."""

    workloads: Workloads
    chance: random.Random
    made: int = 0
    alive: list[str] = field(default_factory=list)
    _next: list[str] = field(default_factory=list)
    """The templates in the order in which they come, each once before one comes again."""

    def step(self) -> None:
        """Makes some pods, and deletes some, without waiting for either."""
        room = _ALIVE - len(self.alive)
        new = {self._name(): self._template() for _ in range(min(room, self.chance.randint(1, 5)))}
        if new:
            self.workloads.pods_of_templates(new)
            self.alive += new
        leaving = self.chance.sample(self.alive, min(len(self.alive), self.chance.randint(0, 4)))
        self.delete(leaving)

    def delete(self, pods: Sequence[str]) -> None:
        """Deletes pods without waiting for them to be gone."""
        if pods:
            now = "--grace-period=1"
            self.workloads.kubectl("delete", "pod", *pods, now, "--wait=false")
            self.alive = [name for name in self.alive if name not in pods]

    def _name(self) -> str:
        self.made += 1
        return f"pod-{self.made}"

    def _template(self) -> str:
        if not self._next:
            self._next = self.chance.sample(sorted(_TEMPLATES), len(_TEMPLATES))
        return self._next.pop()


@dataclass(frozen=True, slots=True)
class View:
    """The pods and claims of the namespace at one time."""

    pods: Mapping[str, Object]
    claims: Mapping[str, Object]

    @classmethod
    def of(cls, workloads: Workloads) -> "View":
        listed = workloads.listed("pods,resourceclaims")
        by_kind: dict[str, dict[str, Object]] = {"Pod": {}, "ResourceClaim": {}}
        for each in listed:
            by_kind[each["kind"]][each["metadata"]["name"]] = each
        return cls(by_kind["Pod"], by_kind["ResourceClaim"])

    def is_at_rest(self, alive: Sequence[str]) -> bool:
        """Whether deleted pods are gone with their claims, and the others run or have no place."""
        running = [pod for pod in self.pods.values() if pod["status"]["phase"] == "Running"]
        waiting = [pod for pod in self.pods.values() if _has_no_place(pod)]
        return (
            self.pods.keys() == set(alive)
            and len(self.claims) == len(alive)
            and len(running) + len(waiting) == len(alive)
            and len(self.results()) == len(running)
        )

    def results(self) -> Mapping[str, Sequence[Object]]:
        """What the allocated claims have, by UID."""
        return {
            claim["metadata"]["uid"]: claim["status"]["allocation"]["devices"]["results"]
            for claim in self.claims.values()
            if claim.get("status", {}).get("allocation")
        }


def _has_no_place(pod: Object) -> bool:
    conditions: list[Any] = pod["status"].get("conditions", [])
    return any(each["type"] == "PodScheduled" and each["status"] == "False" for each in conditions)


@dataclass(frozen=True, slots=True)
class Content:
    """What there is on the node at one time."""

    instances: Sequence[tuple[int, int, int]]
    """The GPU, the placement and the number of compute instances of each GPU instance."""
    prepared: Collection[str]
    """The UIDs of the claims with a CDI spec."""

    @classmethod
    def of(cls, gpus: SimulatedNode, plugin: Plugin) -> "Content":
        return cls(_instances(gpus), plugin.prepared_claims())


def assert_node_has_what_claims_say(view: View, content: Content) -> None:
    """The GPU instances, the CDI specs and the claims agree, and no GPU is used in two ways."""
    results = view.results()
    devices = [
        each["device"] for held in results.values() for each in held if "adminAccess" not in each
    ]
    parts = [match for device in devices if (match := _PARTITION.match(device))]
    partitioned = {(int(part["gpu"]), int(part["start"])) for part in parts}
    whole = Counter(int(match["gpu"]) for each in devices if (match := _WHOLE.match(each)))
    shared = Counter(int(match["gpu"]) for each in devices if (match := _SHARE.match(each)))
    assert len(parts) + whole.total() + shared.total() == len(devices)
    assert set(whole.values()) <= {1}
    assert set(shared.values()) <= {1, 2}
    assert not whole.keys() & shared.keys()
    assert not {gpu for gpu, _ in partitioned} & (whole.keys() | shared.keys())

    assert len(partitioned) == len(parts)
    assert content.instances == sorted((gpu, start, 1) for gpu, start in partitioned)
    assert content.prepared == results.keys()


def _instances(gpus: SimulatedNode) -> list[tuple[int, int, int]]:
    return sorted(
        (minor, instance.start, len(instance.compute_instances))
        for minor, gpu in gpus.state.gpus.items()
        for instance in gpu.instances
    )


@pytest.mark.timeout(300 + 40 * KILLS)
def test_nothing_is_leaked_doubled_or_left_behind(
    workloads: Workloads, gpus: SimulatedNode, plugin: Plugin
) -> None:
    chance = random.Random(seed())
    workloads.kubectl(
        *("label", "namespace", workloads.namespace, "resource.kubernetes.io/admin-access=true")
    )
    for name, requests in _TEMPLATES.items():
        workloads.claim(name, *requests, template=True)
    churn = Churn(workloads, chance)

    def come_to_rest() -> tuple[View, Content]:
        def at_rest() -> tuple[View, Content] | None:
            before, content, after = (
                View.of(workloads),
                Content.of(gpus, plugin),
                View.of(workloads),
            )
            rests = before.is_at_rest(churn.alive) and after.is_at_rest(churn.alive)
            # A pod that had no place may get one at any time.
            return (after, content) if rests and before.results() == after.results() else None

        return wait_for("the node to come to rest", at_rest, timeout=_REST_S)

    kills = 0
    while churn.made < CLAIMS or kills < KILLS:
        churn.step()
        time.sleep(chance.uniform(0, 1))  # the moment of death is the test's input
        plugin.kill()
        kills += 1
        plugin.launch()
        if kills % _REST_EVERY == 0:
            assert_node_has_what_claims_say(*come_to_rest())

    churn.delete(churn.alive)
    _, content = come_to_rest()
    assert content == Content([], set())
    wait_for(
        "MIG mode to be off",
        lambda: not any(gpu.mig_enabled for gpu in gpus.state.gpus.values()),
        timeout=2 * RETRY_S,
    )
    state = plugin.state_folder
    assert parse_checkpoint((state / "checkpoint.jsonl").read_bytes()).claims == {}
    assert list(state.glob("mig/*")) == []  # no partition may have got as far as its record
    assert "Traceback" not in plugin.log()
