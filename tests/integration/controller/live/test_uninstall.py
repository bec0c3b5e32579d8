"""`carina uninstall` on a real control plane: afterwards, pods start as without Carina."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from carina_dra.cli import command
from carina_dra.kube.api_resource import (
    DEVICE_TAINT_RULES,
    LEASES,
    PODS,
    RESOURCE_CLAIMS,
)
from carina_dra.kube.client import MergePatch, Selection
from controller.commands import listed
from controller.names import DELETE_PROTECTION, GROUP, QUEUES, RESERVATIONS, TAINT
from tests.eventually import eventually
from tests.integration.controller.live.site import DRIVER, GPU_CLASS, PLACED_WITHIN, Site, Team

_NODE = "uninstall-0"
_LEASE = "carina-controller"
_SYSTEM = "carina-system"


@pytest.fixture(scope="module", autouse=True)
def node(site: Site) -> Iterator[None]:
    site.add_nodes(_NODE, gpus=4)
    yield
    site.remove_nodes(_NODE)


@pytest.fixture(autouse=True)
def kubeconfig(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(site.cluster.kubeconfig))


@pytest.fixture
def uninstalled(site: Site) -> Iterator[None]:
    """Installs Carina again afterwards, for other tests."""
    yield
    site.cluster.install_carina()


def run(*words: str) -> int:
    return command.run(("uninstall", *words), {"uninstall": listed.UNINSTALL})


def reserve(team: Team, name: str, gpus: int) -> None:
    """Creates a claim that asks the queue for devices by itself."""
    exactly = {"deviceClassName": GPU_CLASS, "count": gpus}
    made = team.client.create(
        RESOURCE_CLAIMS,
        {
            "metadata": {"name": name, "namespace": team.namespace, "labels": team.labels()},
            "spec": {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}},
        },
    )
    assert made["metadata"]["finalizers"] == [DELETE_PROTECTION]


def allocate(team: Team, name: str, *devices: str) -> None:
    """Creates a claim that has devices, as a controller leaves it that was killed."""
    reserve(team, name, len(devices))
    only = {"key": "metadata.name", "operator": "In", "values": [_NODE]}
    results = [
        {"request": "gpus", "driver": DRIVER, "pool": _NODE, "device": device} for device in devices
    ]
    allocation = {
        "devices": {"results": results},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [only]}]},
    }
    patch_status(team, name, allocation=allocation)


def patch_status(team: Team, claim: str, **status: Any) -> None:
    change = MergePatch({"status": status})
    team.client.patch(
        RESOURCE_CLAIMS, claim, change, namespace=team.namespace, subresource="status"
    )


def pod_with(team: Team, name: str, claim: str) -> str:
    """Creates a pod of the queue that uses a claim; its UID."""
    spec = team.pod_spec(0)
    spec["resourceClaims"] = [{"name": "gpus", "resourceClaimName": claim}]
    spec["containers"][0]["resources"]["claims"] = [{"name": "gpus"}]
    metadata = {"name": name, "namespace": team.namespace, "labels": team.labels()}
    uid: str = team.client.create(PODS, {"metadata": metadata, "spec": spec})["metadata"]["uid"]
    return uid


@pytest.mark.usefixtures("uninstalled")
def test_pods_start_without_carina_and_nothing_stays(
    site: Site, new_team: Callable[..., Team], capsys: pytest.CaptureFixture[str]
) -> None:
    team = new_team(resources=[{"deviceClass": GPU_CLASS, "quota": 2}])
    site.client.create(
        DEVICE_TAINT_RULES,
        {
            "metadata": {"name": "carina-exclusive"},
            "spec": {
                "deviceSelector": {"driver": DRIVER},
                "taint": {"key": TAINT, "effect": "NoSchedule"},
            },
        },
    )
    reserve(team, "standalone", gpus=2)
    with site.controller():
        eventually(lambda: len(team.allocated()) == 2, within=PLACED_WITHIN)
        eventually(
            lambda: site.client.get(QUEUES, team.queue)["metadata"].get("finalizers"),
            within=PLACED_WITHIN,
        )
    taken = {device for _, device in team.allocated()}
    free = [device for device in ("gpu-0", "gpu-1", "gpu-2", "gpu-3") if device not in taken]
    allocate(team, "tentative", *free)
    pod_with(team, "interrupted", "tentative")
    team.pod("waits", gpus=2)
    assert len(team.gated()) == 2

    assert run("--dry-run") == 0
    planned = [line.removesuffix(" (dry run)") for line in capsys.readouterr().out.splitlines()]
    assert len(team.gated()) == 2
    assert run() == 0
    assert capsys.readouterr().out.splitlines() == planned
    assert f"ResourceClaim {team.namespace}/standalone: allocation and reservation removed" in (
        planned
    )
    assert f"Queue {team.queue}: finalizer removed" in planned

    team.await_bound(2)
    team.pod("later", gpus=0)
    assert not team.gated()
    assert not site.client.list(DEVICE_TAINT_RULES).items
    assert run() == 0
    assert not capsys.readouterr().out

    team.client.delete_collection(PODS, Selection(team.namespace))
    team.client.delete_collection(RESOURCE_CLAIMS, Selection(team.namespace))
    eventually(lambda: not team.claims(), within=60)


@pytest.mark.usefixtures("uninstalled")
def test_reservation_of_a_claim_that_pods_use_is_removed_alone(site: Site, team: Team) -> None:
    pod = {"resource": "pods", "name": "user", "uid": "of-user"}
    own = {"apiGroup": GROUP, "resource": RESERVATIONS, "name": "shared", "uid": "any"}
    allocate(team, "shared", "gpu-0")
    user = site.client.create(
        PODS,
        {
            "metadata": {"name": "user", "namespace": team.namespace},
            "spec": {**team.pod_spec(0), "nodeName": _NODE},
        },
    )
    pod["uid"] = user["metadata"]["uid"]
    patch_status(team, "shared", reservedFor=[own, pod])
    assert run() == 0
    status = team.claims()["shared"]["status"]
    assert status["reservedFor"] == [pod]
    assert status["allocation"]


def test_nothing_is_done_while_a_controller_leads(
    site: Site, team: Team, capsys: pytest.CaptureFixture[str]
) -> None:
    with site.controller():
        eventually(lambda: _holder(site))
        assert run() == 3
    error = capsys.readouterr().err
    assert error.startswith(
        f"carina uninstall: controller leads by Lease {_SYSTEM}/{_LEASE}; scale"
    )
    team.pod("new", gpus=9)
    assert team.gated() == {"new"}


def _holder(site: Site) -> str:
    found = site.client.list(LEASES, Selection(_SYSTEM)).items
    return "".join(lease["spec"].get("holderIdentity") or "" for lease in found)


def test_queues_alone_are_released_while_a_controller_leads_if_nothing_waits(
    site: Site, new_team: Callable[..., Team], capsys: pytest.CaptureFixture[str]
) -> None:
    team = new_team(resources=[{"deviceClass": GPU_CLASS, "quota": 2}])
    with site.controller():
        team.pod("runs", gpus=1)
        eventually(
            lambda: site.client.get(QUEUES, team.queue)["metadata"].get("finalizers"),
            within=PLACED_WITHIN,
        )
        team.await_bound(1)

        assert run("--if-idle", "--driver", DRIVER) == 4
        assert f"ResourceClaim {team.namespace}/" in capsys.readouterr().out

        team.client.delete_collection(PODS, Selection(team.namespace))
        eventually(lambda: not team.claims(), within=60)
        assert run("--if-idle", "--driver", DRIVER) == 0
        assert f"Queue {team.queue}: finalizer removed" in capsys.readouterr().out
        assert not site.client.get(QUEUES, team.queue)["metadata"].get("finalizers")


def test_pods_that_wait_are_listed_and_keep_their_gate(
    team: Team, capsys: pytest.CaptureFixture[str]
) -> None:
    team.pod("waits", gpus=1)

    assert run("--if-idle") == 4

    assert f"Pod {team.namespace}/waits: waits for the controller" in capsys.readouterr().out
    assert team.gated() == {"waits"}
