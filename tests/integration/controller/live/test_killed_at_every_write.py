"""The controller fails at each of its writes in turn, and every time the gang starts all the same.

What is written together: the fence of what an earlier leader may be writing, the eviction of a
pod, the release of an allocation that nobody waits for, the claims of a gang, and its pods.
"""

import json
from contextlib import suppress
from itertools import count
from typing import Any

import pytest

from carina_dra.kube.api_resource import RESOURCE_CLAIMS
from carina_dra.kube.body import Body
from carina_dra.kube.client import MergePatch
from carina_dra.kube.connection import Connection
from carina_dra.kube.errors import NotFound
from carina_dra.kube.kubeconfig import from_kubeconfig
from tests.eventually import eventually
from tests.integration.controller.live.audit import audited, devices_of, is_gated, left_behind
from tests.integration.controller.live.mortal_controller import (
    Fault,
    FaultAt,
    running,
)
from tests.integration.controller.live.site import DRIVER, PLACED_WITHIN, Site, Team

_PODS, _CLAIMS_EACH = 3, 2
_FENCED = _PODS * _CLAIMS_EACH + 2
"""The claims of the gang, the claim that an earlier leader has allocated, and its pod."""
_WRITES = _FENCED + _PODS * _CLAIMS_EACH + _PODS + 2
"""Those, claims, pods, the eviction and the release."""
_SCENES = _WRITES + 5
"""A start that is decided again needs more writes."""
_HIGH = "above-others"


@pytest.fixture(scope="module")
def connection(site: Site) -> Connection:
    """With the permissions that deploy/ gives the controller."""
    account = site.cluster.service_account_credentials("carina-system", "carina-controller")
    return from_kubeconfig(account.kubeconfig)


@pytest.fixture(scope="module", autouse=True)
def priority_class(site: Site) -> None:
    body = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": _HIGH},
        "value": 1000,
    }
    site.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(body))


def _slug(fault: Fault) -> str:
    return fault.value.replace(" ", "-")


class Scene:
    """A node that is full, and a gang for which an eviction and a release make room."""

    def __init__(self, team: Team, node: str) -> None:
        self._team = team
        self._node = node
        self._victim, self._idle, self._gang = f"{node}-victim", f"{node}-idle", f"{node}-gang"
        self._uids: dict[str, str] = {}

    def add(self) -> None:
        """Adds the node and the pod that is to be evicted, which a controller has to start."""
        self._team.site.add_nodes(self._node, gpus=_PODS * _CLAIMS_EACH)
        self._pod(self._victim)

    def prepare(self) -> None:
        """Brings about all that the next controller finds."""
        self._pod(self._idle, schedulingGates=[{"name": "example.com/not-yet"}])
        self._team.group(self._gang, minCount=_PODS)
        for index in range(_PODS):
            self._pod(
                f"{self._gang}-{index}",
                group=self._gang,
                priorityClassName=_HIGH,
                claims=_CLAIMS_EACH,
            )
        claims = eventually(self._claims_of_all, within=PLACED_WITHIN) or {}
        self._allocate(claims[self._idle][0])
        self._uids = {
            name: pod["metadata"]["uid"]
            for name, pod in self._pods().items()
            if name.startswith(self._gang)
        }

    def is_settled(self) -> bool:
        """Whether the very gang runs, the victim is gone, and nothing is left behind."""
        pods = self._pods()
        bound = {
            name: pod["metadata"]["uid"]
            for name, pod in pods.items()
            if pod["spec"].get("nodeName")
        }
        return bound == self._uids and not left_behind(pods, self._claims())

    def await_settled(self) -> None:
        """Waits for that."""
        eventually(self.is_settled, within=PLACED_WITHIN)
        assert is_gated(self._pods()[self._idle])
        devices = [each for claim in self._claims().values() for each in devices_of(claim)]
        assert len(devices) == len(set(devices)) == _PODS * _CLAIMS_EACH

    def remove(self) -> None:
        """Removes what later scenes need not see."""
        for name in self._pods():
            with suppress(NotFound):
                self._team.delete_pod(name)
        self._team.site.remove_nodes(self._node)

    def _pod(self, name: str, *, claims: int = 1, group: str | None = None, **spec: Any) -> None:
        template = self._team.template()
        names = [f"gpu-{index}" for index in range(claims)]
        self._team.pod(
            name,
            group=group,
            nodeSelector={"kubernetes.io/hostname": self._node},
            resourceClaims=[
                {"name": each, "resourceClaimTemplateName": template} for each in names
            ],
            containers=[
                {
                    "name": "main",
                    "image": "none",
                    "resources": {"claims": [{"name": each} for each in names]},
                }
            ],
            **spec,
        )

    def _allocate(self, claim: Body) -> None:
        """Writes an allocation for the idle pod, as a controller does that then dies."""
        taken = {device for each in self._claims().values() for _, device in devices_of(each)}
        free = next(name for name in map("gpu-{}".format, count()) if name not in taken)
        here = {"key": "metadata.name", "operator": "In", "values": [self._node]}
        request = {"request": "gpus", "driver": DRIVER, "pool": self._node, "device": free}
        pod = self._pods()[self._idle]["metadata"]
        status = {
            "allocation": {
                "devices": {"results": [request]},
                "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [here]}]},
            },
            "reservedFor": [{"resource": "pods", "name": pod["name"], "uid": pod["uid"]}],
        }
        metadata = claim["metadata"]
        self._team.client.patch(
            RESOURCE_CLAIMS,
            metadata["name"],
            MergePatch({"status": status}),
            namespace=metadata["namespace"],
            subresource="status",
        )

    def _pods(self) -> dict[str, Body]:
        return {name: pod for name, pod in self._team.pods().items() if self._is_here(name)}

    def _claims(self) -> dict[str, Body]:
        return {name: claim for name, claim in self._team.claims().items() if self._is_here(name)}

    def _claims_of_all(self) -> dict[str, list[Body]] | None:
        """The claims of each pod, once all have been made."""
        pods, claims = self._pods(), self._claims()
        of_pods: dict[str, list[Body]] = {}
        for name, pod in pods.items():
            statuses = pod["status"].get("resourceClaimStatuses") or ()
            of_pods[name] = [claims[each["resourceClaimName"]] for each in statuses]
            if len(of_pods[name]) < len(pod["spec"]["resourceClaims"]):
                return None
        return of_pods

    def _is_here(self, name: str) -> bool:
        return name.startswith(f"{self._node}-")


@pytest.mark.parametrize("fault", Fault, ids=_slug)
def test_gang_starts_whole_and_once(
    site: Site, team: Team, connection: Connection, fault: Fault
) -> None:
    scenes = [Scene(team, f"{_slug(fault)}-{number}") for number in range(1, _SCENES + 1)]
    for scene in scenes:
        scene.add()
    with running(connection):
        team.await_bound(_SCENES)
    struck: list[bool] = []
    with audited(site.client):
        for number, scene in enumerate(scenes, 1):
            if all(struck):
                scene.prepare()
                struck.append(_run(scene, connection, FaultAt(number, fault)))
            scene.remove()
    assert len(struck) > _WRITES
    assert not struck[-1], "not all writes were reached"


def _run(scene: Scene, connection: Connection, fault: FaultAt) -> bool:
    """Has controllers bring the scene to its end; whether the fault happened."""
    with running(connection, fault) as controller:
        if not fault.fault.is_deadly:
            scene.await_settled()
            return controller.struck
        eventually(lambda: controller.struck or scene.is_settled(), within=PLACED_WITHIN)
    with running(connection):
        scene.await_settled()
    return controller.struck
