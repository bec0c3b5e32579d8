"""Objects of any form, as no API server would store them, end nothing and delay nobody else."""

import copy
from random import Random
from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from carina_dra.kube.body import Body, key_of
from carina_dra.kube.store import Created, Removed, Updated
from carina_dra.resource import encode
from controller.act.commit import Commit
from controller.act.writer import Writer
from controller.engine.model.snapshot import Snapshot
from controller.observe.mirror import Mirror
from controller.report.cycle_report import CycleReport
from controller.report.group_events import GroupEvents
from controller.report.metrics import ControllerMetrics
from controller.report.regarding import references
from controller.run.follower import Follower
from controller.run.inbox import Inbox
from controller.run.loop import Loop
from controller.run.subjects import Subject, optional_subjects, subjects
from tests.unit.controller.bodies import CREATED, claim_body, pod_body
from tests.unit.controller.engine.properties.examples import examples
from tests.unit.controller.engine.scene import NOW, Scene, gpu_slice

_ODD: Final[tuple[Any, ...]] = (
    *(None, True, 0, -1, 2**63, 10**400, 1.5, float("inf"), "", "a", "\ud800", "1e999", "-1m"),
    *("x" * 5_000, "2026-01-01T00:00:00Z", "99999-01-01T00:00:00Z", "a/b", [], {}, [None], [[]]),
    *([{}], {"a": None}, {"": ""}, ["a", "a"], [{"name": None}], {"key": {"key": []}}),
)


class _Silent:
    """Takes everything that is written and reported, and does nothing."""

    def __init__(self) -> None:
        self.commits: list[Commit] = []
        self.settled = True

    def commit(self, commit: Commit) -> None:
        self.commits.append(commit)

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


class _World:
    """A controller of one node and one queue, which is shown objects as a watch shows them."""

    def __init__(self) -> None:
        self.mirror = Mirror(Snapshot(now=NOW, settings=Scene().settings))
        self.writer = _Silent()
        silent: Any = _Silent()
        metrics, writer = ControllerMetrics(), self.writer
        events = GroupEvents(silent)
        report = CycleReport(
            silent, events, metrics, references(self.mirror), set_aside=self.mirror.set_aside
        )
        a_writer: Writer = writer  # type: ignore[assignment]
        self.loop = Loop(
            self.mirror,
            a_writer,
            report,
            events,
            metrics,
            inbox=Inbox(),
            verdict_seconds=1,
            avoid_seconds=1,
            now=lambda: NOW,
        )
        optional = (each[0] for each in optional_subjects(self.mirror))
        self.followers: dict[str, Follower[Any]] = {
            subject.resource.kind: self._follower(subject)
            for subject in (*optional, *subjects(self.mirror))
        }
        self.values: dict[tuple[str, str], Any] = {}
        self.show(_queue())
        for resource_slice in (gpu_slice("n1", 2),):
            self.show({**encode(resource_slice), "kind": "ResourceSlice"})
        self.mirror.put_node(Scene().node("n1").nodes["n1"])
        self.show({"kind": "DeviceClass", "metadata": {"name": "gpu", "uid": "u"}, "spec": {}})

    def _follower(self, subject: Subject[Any]) -> Follower[Any]:
        return Follower(subject, lambda work: work(), self.mirror.set_aside)

    def show(self, body: Body, kind: str = "") -> None:
        follower = self.followers[kind or body["kind"]]
        key, value = key_of(body), follower.parse(body)
        known = self.values.get((kind or body["kind"], str(key)))
        self.values[kind or body["kind"], str(key)] = value
        follower.changed(Created(key, value) if known is None else Updated(key, known, value))

    def remove(self, body: Body, kind: str) -> None:
        key = key_of(body)
        if (value := self.values.pop((kind, str(key)), None)) is not None:
            self.followers[kind].changed(Removed(key, value))

    def step(self) -> None:
        self.loop._reported_at = -1e9
        self.loop.step(busy=True)

    @property
    def started(self) -> set[str]:
        return {commit.group for commit in self.writer.commits}


def _metadata(name: str, namespace: str = "t") -> Body:
    return {
        "namespace": namespace,
        "name": name,
        "uid": f"uid-{name}",
        "resourceVersion": "1",
        "generation": 1,
        "creationTimestamp": CREATED,
    }


def _queue() -> Body:
    spec = {
        "resources": [{"deviceClass": "gpu", "quota": 2, "limit": 2}],
        "namespaces": {"selector": {}},
    }
    return {
        "apiVersion": "scheduling.carina.dev/v1alpha1",
        "kind": "Queue",
        "metadata": {**_metadata("q", ""), "namespace": ""},
        "spec": spec,
    }


def _bodies() -> list[Body]:
    """What a tenant writes, in valid form."""
    affinity = {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"topologyKey": "k", "labelSelector": {"matchLabels": {"a": "b"}}}
            ]
        },
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]}
                ]
            }
        },
    }
    resources = {"requests": {"cpu": "1", "memory": "1Gi"}}
    reference = {"name": "j", "uid": "uid-j", "controller": True}
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", **reference}
    rich = pod_body(
        "odd",
        claims=["odd"],
        owner=owner,
        group=None,
        affinity=affinity,
        tolerations=[{"key": "k", "operator": "Exists"}],
        nodeSelector={"a": "b"},
        annotations={"scheduling.carina.dev/min-count": "1"},
        containers=[
            {"name": "c", "resources": resources, "ports": [{"hostPort": 1, "containerPort": 1}]}
        ],
        initContainers=[{"name": "i", "restartPolicy": "Always", "resources": resources}],
        topologySpreadConstraints=[
            {"maxSkew": 1, "topologyKey": "k", "whenUnsatisfiable": "DoNotSchedule"}
        ],
    )
    claim = claim_body("odd")
    claim["kind"] = "ResourceClaim"
    claim["spec"]["devices"] |= {
        "constraints": [{"requests": ["gpus"], "matchAttribute": "gpu/a"}],
        "config": [{"opaque": {"driver": "gpu", "parameters": {"a": 1}}}],
    }
    return [
        rich,
        pod_body("odd-member", group="odd"),
        claim,
        {
            "kind": "PodGroup",
            "metadata": _metadata("odd"),
            "spec": {"subGroups": [{"name": "a", "minCount": 1}], "runTime": "1m"},
        },
        {
            "kind": "PodDisruptionBudget",
            "metadata": _metadata("odd"),
            "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"a": "b"}}},
            "status": {"disruptionsAllowed": 0, "observedGeneration": 1},
        },
        {
            "kind": "StatefulSet",
            "metadata": _metadata("j"),
            "spec": {"replicas": 1, "template": {"metadata": {}, "spec": {}}},
        },
        {"kind": "Namespace", "metadata": {**_metadata("odd", ""), "labels": {"a": "b"}}},
    ]


def _mutated(rng: Random, body: Body) -> Body:
    """A body with some members replaced, removed or added; its name and namespace stay."""
    changed = copy.deepcopy(body)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at: Any = changed
        while True:
            keys: list[Any] = list(at) if isinstance(at, dict) else list(range(len(at)))
            if not keys:
                break
            key = rng.choice(keys)
            if isinstance(at[key], dict | list) and rng.random() < 0.8:
                at = at[key]
                continue
            if key in {"name", "namespace", "kind", "apiVersion"} and at in (
                changed,
                changed["metadata"],
            ):
                break
            if key == "metadata":
                break
            if isinstance(at, dict) and rng.random() < 0.2:
                del at[key]
            else:
                at[key] = copy.deepcopy(rng.choice(_ODD))
            break
    return changed


@given(st.randoms(use_true_random=False))
@examples(30)
def test_odd_objects_end_nothing_and_delay_nobody_else(rng: Random) -> None:
    world = _World()
    bodies = _bodies()
    for _ in range(rng.choice((5, 15))):
        body = rng.choice(bodies)
        kind = body["kind"]
        odd = _mutated(rng, body) if rng.random() < 0.8 else body
        if rng.random() < 0.1:
            world.remove(body, kind)
        else:
            world.show(odd, kind)
        if rng.random() < 0.5:
            world.step()
    world.show({**claim_body("good"), "kind": "ResourceClaim"})
    world.show(pod_body("good", claims=["good"]))
    world.step()
    world.step()
    for body in bodies:
        world.remove(body, body["kind"])
    world.step()
    assert "t/pod/good" in world.started
