"""The API server serves Queue and PodGroup, and accepts exactly what the controller reads."""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import pytest

from carina_dra.resource.errors import BadValueError
from controller.api.pod_group import read_pod_group
from controller.api.queue import read_declared_queue
from simulation.kubernetes.cluster import DEPLOY, Cluster, KubectlError
from simulation.kubernetes.process import wait_for

_API_VERSION = "scheduling.carina.dev/v1alpha1"
_DOCUMENTS = 400


@pytest.fixture(scope="module", autouse=True)
def definitions(cluster: Cluster) -> None:
    """The definitions, as they are shipped."""
    cluster.kubectl("apply", "-f", str(DEPLOY / "crds"))
    cluster.kubectl("wait", "--for=condition=Established", "-f", str(DEPLOY / "crds"))
    for kind in ("queue", "podgroup"):  # schemas are published a moment later
        wait_for(
            f"the schema of {kind} to be published",
            partial(cluster.kubectl, "explain", f"{kind}.spec"),
            retry_on=(KubectlError,),
        )


@pytest.mark.parametrize("file", sorted(Path(DEPLOY / "crds").glob("*.yaml")), ids=lambda f: f.stem)
def test_the_schema_is_structural(cluster: Cluster, file: Path) -> None:
    conditions = json.loads(cluster.kubectl("get", "-f", str(file), "-o", "json"))["status"]

    assert [
        each for each in conditions["conditions"] if each["type"] == "NonStructuralSchema"
    ] == []


@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("queue", "A share of the cluster, which pods and claims use that name it"),
        ("queue.spec.namespaces.selector.matchExpressions.operator", "A namespace without the"),
        ("queue.status.resources.fairShare", "What the queue may count on"),
        ("podgroup.spec.subGroups.topologyConstraint.requiredLevel", "All pods are on nodes"),
        ("podgroup.status.pods.evicting", "Pods that are leaving because they were evicted."),
    ],
)
def test_kubectl_explains_a_field(cluster: Cluster, field: str, said: str) -> None:
    assert said in " ".join(cluster.kubectl("explain", field).split())


def test_short_names_and_columns_are_printed(cluster: Cluster) -> None:
    queue = {"apiVersion": _API_VERSION, "kind": "Queue", "metadata": {"name": "printed"}}
    cluster.apply({**queue, "spec": {"parent": "company"}})
    try:
        headings, row = cluster.kubectl("get", "cq", "printed").splitlines()
    finally:
        cluster.kubectl("delete", "queue", "printed")

    columns = "NAME PARENT ALLOCATED FAIR SHARE RUNNING PENDING STATE AGE"
    assert " ".join(headings.split()) == columns
    assert row.split()[:2] == ["printed", "company"]


def test_defaults_are_written_into_the_object(cluster: Cluster) -> None:
    body = _document("PodGroup", 0, {"minCount": 1})

    made = json.loads(
        cluster.kubectl(
            *("create", "--dry-run=server", "-f", "-", "-o", "json"), stdin=json.dumps(body)
        )
    )

    assert made["spec"] == {
        "minCount": 1,
        "preemptible": True,
        "preemptionDelay": "0s",
        "onDeviceFailure": "wait",
    }


def test_a_group_stays_preemptible_or_not(cluster: Cluster) -> None:
    body = _document("PodGroup", 0, {"minCount": 1})
    cluster.apply(body)
    try:
        cluster.apply(_document("PodGroup", 0, {"minCount": 2}))
        with pytest.raises(KubectlError, match="preemptible cannot be changed"):
            cluster.apply(_document("PodGroup", 0, {"minCount": 2, "preemptible": False}))
    finally:
        cluster.kubectl("delete", "podgroup.scheduling.carina.dev", "group-0")


@pytest.mark.parametrize(
    ("kind", "spec", "message"),
    [
        ("Queue", {"parent": "queue-0"}, "spec.parent must be another queue"),
        (
            "Queue",
            {"resources": [{"name": "cpu", "deviceClass": "a"}]},
            "write one of gpus, deviceClass, capacity and name",
        ),
        (
            "Queue",
            {"resources": [{"gpus": {}, "deviceClass": "a"}]},
            "write one of gpus, deviceClass, capacity and name",
        ),
        (
            "Queue",
            {"resources": [{"gpus": {"model": "H100"}}, {"gpus": {"model": "H100"}}]},
            "resources: a gpus occurs twice; remove one of them",
        ),
        (
            "Queue",
            {"resources": [{"gpus": {}, "quota": "500m"}]},
            "quota of gpus, devices and pods is a number; write it without a unit",
        ),
        (
            "Queue",
            {"resources": [{"deviceClass": "gpu", "quota": "0.5"}]},
            "quota of gpus, devices and pods is a number; write it without a unit",
        ),
        (
            "Queue",
            {"resources": [{"name": "cpu"}, {"name": "cpu"}]},
            "resources: a name occurs twice; remove one of them",
        ),
        (
            "Queue",
            {"resources": [{"name": "cpu", "quota": 2, "limit": "1500m"}]},
            "quota must not be more than limit; lower quota, or raise or remove limit",
        ),
        (
            "Queue",
            {"resources": [{"deviceClass": "gpu", "limit": "8Gi"}]},
            "limit of gpus, devices and pods is a number; write it without a unit",
        ),
        ("Queue", {"namespaces": {}}, "namespaces: write names, selector or both"),
        ("Queue", {"priorities": {"min": 2, "max": 1}}, "priorities: write min, max or both"),
        ("PodGroup", {}, "write either minCount, if all pods are alike, or subGroups"),
        (
            "PodGroup",
            {"subGroups": [{"name": "a", "minCount": 1, "parent": "a"}]},
            "at most 3 levels are possible, and no sub-group can be below itself",
        ),
    ],
)
def test_a_mistake_is_refused_with_its_remedy(
    cluster: Cluster, kind: str, spec: Any, message: str
) -> None:
    with pytest.raises(KubectlError) as refused:
        cluster.kubectl(
            *("create", "--dry-run=server", "-f", "-"), stdin=json.dumps(_document(kind, 0, spec))
        )
    assert message in str(refused.value)


@pytest.mark.parametrize("seed", [1, 2])
def test_the_api_server_accepts_the_pod_groups_that_the_controller_reads(
    cluster: Cluster, seed: int
) -> None:
    rng = Random(seed)
    bodies = [_document("PodGroup", index, _pod_group(rng)) for index in range(_DOCUMENTS)]

    accepted = _accepted(cluster, bodies)

    read = {_name(body) for body in bodies if _is_read(read_pod_group, body)}
    assert accepted == read
    assert 0.25 < len(read) / _DOCUMENTS < 0.75


@pytest.mark.parametrize("seed", [1, 2])
def test_the_api_server_accepts_the_queues_that_the_controller_reads(
    cluster: Cluster, seed: int
) -> None:
    rng = Random(seed)
    bodies = [_document("Queue", index, _queue(rng)) for index in range(_DOCUMENTS)]

    accepted = _accepted(cluster, bodies)

    read = {_name(body) for body in bodies if _is_read(read_declared_queue, body)}
    assert accepted == read
    assert 0.25 < len(read) / _DOCUMENTS < 0.75


def _accepted(cluster: Cluster, bodies: Sequence[Mapping[str, Any]]) -> set[str]:
    """The names of the objects that the API server would create."""
    listed = json.dumps({"apiVersion": "v1", "kind": "List", "items": bodies})
    create = ("create", "--dry-run=server", "--validate=false", "-f", "-")
    try:
        cluster.kubectl(*create, stdin=listed)
    except KubectlError as error:
        return {_name(body) for body in bodies if f'"{_name(body)}" is invalid' not in str(error)}
    return {_name(body) for body in bodies}


def _is_read(read: Any, body: Mapping[str, Any]) -> bool:
    try:
        read(body)
    except BadValueError:
        return False
    return True


def _document(kind: str, number: int, spec: Mapping[str, Any]) -> dict[str, Any]:
    metadata = (
        {"name": f"queue-{number}"}
        if kind == "Queue"
        else {"name": f"group-{number}", "namespace": "default"}
    )
    return {"apiVersion": _API_VERSION, "kind": kind, "metadata": metadata, "spec": dict(spec)}


def _name(body: Mapping[str, Any]) -> str:
    name: str = body["metadata"]["name"]
    return name


# Objects that are right, nearly right and wrong. What files may have beside it is left out: numbers
# where the API has text, and quantities such as 1e3.

_ABSENT = object()
_WRONG_PART = 0.04


class _Values(NamedTuple):
    """Values of a field that are right, and values that are wrong, at least in some objects."""

    right: Sequence[object]
    wrong: Sequence[object] = ()


_COUNT = _Values((0, 1, 2), (_ABSENT, 3, -1, 100_001, "2", True))
_OPTIONAL_COUNT = _Values((_ABSENT, _ABSENT, 1), (2, -1))
_DURATION = _Values((_ABSENT, "0s", "90s", "1h30m", "0.5h"), ("1d", "-1s", "", "1h 30m", True))
_GRACE = _Values((*_DURATION.right, "never"), (*_DURATION.wrong, "ever"))
_PLACEMENT = _Values((_ABSENT, "binpack", "upstream", "spread/upstream"), ("upstream/spread", "x"))
_BOOLEAN = _Values((_ABSENT, True, False), ("yes", 1))
_LEVEL = _Values(("zone", "example.com/rack"), (_ABSENT, "example.com/", "-a"))
_NUMBERS = (_ABSENT, 0, 4, 8, "8", "16")
_AMOUNTS = ("4Gi", "1.5Ti", "0.5", "500m", "unlimited", -1, "-1", "x", True)
_WEIGHT = _Values((_ABSENT, 0, 1, "2", "1/3", "0.5"), ("1/0", "-1", -1, "a", True))


def _object(rng: Random, **fields: _Values) -> dict[str, Any]:
    drawn = {
        name: rng.choice(values.wrong if values.wrong and _is_wrong(rng) else values.right)
        for name, values in fields.items()
    }
    return {name: value for name, value in drawn.items() if value is not _ABSENT}


def _is_wrong(rng: Random) -> bool:
    return rng.random() < _WRONG_PART


def _topology(rng: Random) -> object:
    if rng.random() < 0.7:
        return _ABSENT
    return _object(
        rng,
        topology=_Values(("racks",), ("a.b", _ABSENT)),
        requiredLevel=_LEVEL,
        preferredLevel=_Values((_ABSENT, *_LEVEL.right), _LEVEL.wrong),
    )


def _pod_group(rng: Random) -> dict[str, Any]:
    spec = _object(
        rng,
        preemptible=_BOOLEAN,
        stalenessGracePeriod=_GRACE,
        preemptionDelay=_DURATION,
        runTime=_DURATION,
        placement=_PLACEMENT,
        topologyConstraint=_Values((_topology(rng),)),
    )
    if rng.random() < 0.4:
        return spec | _object(rng, minCount=_COUNT, minSubGroups=_Values((_ABSENT,), (1,)))
    spec |= _object(rng, minCount=_Values((_ABSENT,), (1,)), minSubGroups=_OPTIONAL_COUNT)
    return {**spec, "subGroups": list(_parts(rng))}


def _parts(rng: Random) -> Iterator[dict[str, Any]]:
    """Sub-groups, most of which have a parent that was there before them, or none."""
    names = rng.sample(("a", "b", "c", "d", "e-1"), rng.randrange(1, 6))
    parents = [rng.choice((_ABSENT, *names[:index])) for index in range(len(names))]
    for index, (name, parent) in enumerate(zip(names, parents, strict=True)):
        is_leaf = name not in parents[index:]
        yield _object(
            rng,
            name=_Values((name,), (names[0], "A", _ABSENT)),
            parent=_Values((parent,), ("a", "B", name, names[-1])),
            minCount=_COUNT if is_leaf else _Values((_ABSENT,), (1,)),
            minSubGroups=_Values((_ABSENT,), (1,)) if is_leaf else _OPTIONAL_COUNT,
            topologyConstraint=_Values((_topology(rng),)),
        )


def _queue(rng: Random) -> dict[str, Any]:
    return _object(
        rng,
        parent=_Values((_ABSENT, "company", "a.b"), ("queue-7", "Company", "a" * 64)),
        priority=_Values((_ABSENT, 0, -5, 2**31 - 1), (2**31, "1")),
        resources=_Values((_ABSENT, *([_resource(rng) for _ in range(n)] for n in range(3)))),
        preemptMinRuntime=_DURATION,
        reclaimMinRuntime=_DURATION,
        placement=_PLACEMENT,
        reserves=_BOOLEAN,
        namespaces=_Values((_ABSENT, _ABSENT, _namespaces(rng))),
        priorities=_Values(
            (_ABSENT, {"min": 0}, {"max": -7}, {"min": 3, "max": 3}),
            ({}, {"min": 4, "max": 3}, {"max": 2**31}),
        ),
    )


_RESOURCES: Final[Sequence[Mapping[str, object]]] = (
    {"gpus": {}},
    {"gpus": {"model": "NVIDIA H100 80GB HBM3"}},
    {"name": "cpu"},
    {"name": "memory"},
    {"name": "pods"},
    {"deviceClass": "gpu.carina.dev"},
    {"capacity": "gpu.carina.dev/memory"},
)
_NO_RESOURCES: Final[Sequence[Mapping[str, object]]] = (
    {"gpus": {}},
    {"gpus": {"model": "NVIDIA H100 80GB HBM3"}},
    {"deviceClass": "GPU"},
    {"capacity": "memory"},
    {"name": "gpu"},
    {"name": "cpu", "capacity": "gpu.carina.dev/memory"},
    {},
)


def _resource(rng: Random) -> dict[str, Any]:
    kind = rng.choice(_NO_RESOURCES if _is_wrong(rng) else _RESOURCES)
    quota, limit = _Values(_NUMBERS[:4], _AMOUNTS), _Values((_ABSENT, 8, "16"), _AMOUNTS)
    if rng.random() < 0.2:
        quota = limit = _Values((*_NUMBERS, *_AMOUNTS))
    return {**kind, **_object(rng, quota=quota, limit=limit, weight=_WEIGHT)}


def _namespaces(rng: Random) -> dict[str, Any]:
    requirement = _object(
        rng,
        key=_Values(("tier", "example.com/tier"), ("a b", _ABSENT)),
        operator=_Values(("In", "NotIn"), ("Exists", "DoesNotExist", "Is", _ABSENT)),
        values=_Values((["a"], ["a", ""]), (_ABSENT, [], ["a b"])),
    )
    selector = _object(
        rng,
        matchLabels=_Values((_ABSENT, {}, {"a.b/tier": "a"}), ({"a b": "a"}, {"tier": "-"})),
        matchExpressions=_Values((_ABSENT, [], [requirement])),
    )
    return _object(
        rng,
        names=_Values((_ABSENT, ["a", "b"]), ([], ["A"])),
        selector=_Values((selector,), (_ABSENT,)),
    )
