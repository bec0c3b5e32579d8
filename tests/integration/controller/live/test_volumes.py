"""Pods with volumes, affinity to others and spread constraints, on a real control plane."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from carina_dra.kube.body import Body
from controller.names import GATE
from tests.eventually import eventually
from tests.integration.controller.live.site import PLACED_WITHIN, Site, Team

_NODES = [f"volumes-{index}" for index in range(3)]
_HOST = "kubernetes.io/hostname"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@pytest.fixture(scope="module", autouse=True)
def running(site: Site) -> Iterator[None]:
    for name in _NODES:
        site.add_nodes(name, gpus=4, metadata={"labels": {_HOST: name}})
    with site.controller():
        yield
    site.remove_nodes(*_NODES)


@pytest.fixture
def volume(team: Team) -> Iterator[Callable[..., str]]:
    """Makes PersistentVolumes, which are gone at the end."""
    made: list[str] = []

    def make(node: str, class_name: str = "") -> str:
        name = f"{team.namespace}-{len(made)}"
        terms = [{"matchExpressions": [{"key": _HOST, "operator": "In", "values": [node]}]}]
        spec = {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": class_name,
            "persistentVolumeReclaimPolicy": "Retain",
            "local": {"path": "/data"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
        }
        _create(team, "v1", "PersistentVolume", name, spec=spec)
        made.append(name)
        return name

    yield make
    for name in made:
        team.site.cluster.kubectl("delete", "persistentvolume", name, "--wait=false")


def _create(team: Team, version: str, kind: str, name: str, **more: Any) -> None:
    body = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **more}
    team.site.cluster.kubectl("create", "-n", team.namespace, "-f", "-", stdin=json.dumps(body))


def _claim(team: Team, name: str, **spec: Any) -> None:
    _create(
        team,
        "v1",
        "PersistentVolumeClaim",
        name,
        spec={
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "",
            "resources": {"requests": {"storage": "1Gi"}},
            **spec,
        },
    )


def _with_claim(name: str) -> Body:
    return {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]}


def _events(team: Team) -> str:
    return str(team.site.cluster.kubectl("get", "events", "-n", team.namespace, "-o", "json"))


def _await_event(team: Team, text: str) -> None:
    eventually(lambda: text in _events(team) or None, within=PLACED_WITHIN)


def _job_failures(team: Team, name: str) -> int:
    output = team.site.cluster.kubectl("get", "job", name, "-n", team.namespace, "-o", "json")
    return int(json.loads(output).get("status", {}).get("failed", 0))


def test_a_job_waits_for_a_claim_that_comes_later(team: Team, volume: Callable[..., str]) -> None:
    team.job("train", pods=1, **_with_claim("later"))
    _await_event(team, 'persistentvolumeclaim \\"later\\" not found')
    [pod] = team.pods().values()
    assert [gate["name"] for gate in pod["spec"]["schedulingGates"]] == [GATE]
    _claim(team, "later", volumeName=volume(_NODES[1]))
    assert list(team.await_bound(1).values()) == [_NODES[1]]
    assert list(team.bound()) == [pod["metadata"]["name"]]
    assert _job_failures(team, "train") == 0


def test_a_pod_goes_where_its_volume_is(team: Team, volume: Callable[..., str]) -> None:
    _claim(team, "data", volumeName=volume(_NODES[2]))
    team.job("train", pods=1, **_with_claim("data"))
    assert list(team.await_bound(1).values()) == [_NODES[2]]
    assert _job_failures(team, "train") == 0


def test_a_volume_is_chosen_for_a_pod_where_one_is_available(
    team: Team, volume: Callable[..., str]
) -> None:
    name = f"local-{team.namespace}"
    _create(
        team,
        "storage.k8s.io/v1",
        "StorageClass",
        name,
        provisioner="kubernetes.io/no-provisioner",
        volumeBindingMode="WaitForFirstConsumer",
    )
    _claim(team, "data", storageClassName=name)
    team.job("train", pods=1, **_with_claim("data"))
    _await_event(team, "volumes on 3")
    volume(_NODES[1], name)
    assert list(team.await_bound(1).values()) == [_NODES[1]]
    assert _job_failures(team, "train") == 0
    team.site.cluster.kubectl("delete", "storageclass", name)


def test_the_claim_of_an_ephemeral_volume_is_made_for_a_gated_pod(
    team: Team, volume: Callable[..., str]
) -> None:
    volume(_NODES[0], f"ephemeral-{team.namespace}")
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": f"ephemeral-{team.namespace}",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    scratch = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": claim}}}
    team.pod("one", volumes=[scratch])
    assert team.await_bound(1) == {"one": _NODES[0]}


def test_anti_affinity_holds_across_namespaces(new_team: Callable[..., Team]) -> None:
    first, second = new_team(), new_team()
    term = {
        "topologyKey": _HOST,
        "labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
        "namespaceSelector": {},
    }
    apart = {"podAntiAffinity": {_REQUIRED: [term]}}
    _labelled(first, "one", affinity=apart)
    [node] = first.await_bound(1).values()
    for index in range(2):
        _labelled(second, f"other-{index}", affinity=apart)
    found = second.await_bound(2)
    assert sorted((node, *found.values())) == _NODES
    _labelled(second, "last")
    _await_event(second, "pod affinity on 3")
    first.delete_pod("one")
    assert second.await_bound(1, "last") == {"last": node}


def test_the_pods_of_a_job_are_spread(team: Team) -> None:
    constraint = {
        "topologyKey": _HOST,
        "maxSkew": 1,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": team.labels()},
    }
    team.job("train", pods=6, topologySpreadConstraints=[constraint])
    nodes = team.await_bound(6).values()
    assert sorted(nodes) == sorted(2 * _NODES)
    assert _job_failures(team, "train") == 0


def test_the_api_server_merges_the_label_keys_of_affinity_and_spread(team: Team) -> None:
    selector = {"labelSelector": {"matchLabels": {"a": "b"}}, "matchLabelKeys": ["app"]}
    term = {"topologyKey": _HOST, **selector}
    spread = {**term, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    more = {
        "affinity": {"podAntiAffinity": {_REQUIRED: [term]}},
        "topologySpreadConstraints": [spread],
    }
    _labelled(team, "one", **more)
    [pod] = team.pods().values()
    merged = {"key": "app", "operator": "In", "values": ["one"]}
    [kept] = pod["spec"]["affinity"]["podAntiAffinity"][_REQUIRED]
    assert merged in kept["labelSelector"]["matchExpressions"]
    [kept] = pod["spec"]["topologySpreadConstraints"]
    assert merged in kept["labelSelector"].get("matchExpressions", ())
    assert list(team.await_bound(1)) == ["one"]


def test_the_pods_of_a_job_with_a_minimum_of_domains_are_not_refused(team: Team) -> None:
    constraint = {
        "topologyKey": _HOST,
        "maxSkew": 2,
        "minDomains": 2,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": team.labels()},
    }
    team.job("train", pods=6, topologySpreadConstraints=[constraint])
    assert sorted(team.await_bound(6).values()) == sorted(2 * _NODES)
    assert _job_failures(team, "train") == 0


def _labelled(team: Team, name: str, **spec: Any) -> None:
    _create_pod(team, name, {**team.labels(), "app": name}, team.pod_spec(1, **spec))


def _create_pod(team: Team, name: str, labels: dict[str, str], spec: Body) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
    }
    team.site.cluster.kubectl("create", "-n", team.namespace, "-f", "-", stdin=json.dumps(body))
