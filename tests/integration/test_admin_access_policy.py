"""Claims of a DeviceClass with the label `carina.dev/requires: admin-access` need admin access."""

import json
from collections.abc import Iterator, Mapping

import pytest

from simulation.kubernetes.cluster import Cluster, KubectlError
from simulation.kubernetes.process import wait_for

_CLASS = "monitor.gpu.carina.dev"
_NAMESPACE = "monitoring"
_REFUSED = f'DeviceClass "{_CLASS}" needs admin access: write adminAccess: true'


@pytest.fixture(scope="module", autouse=True)
def namespace(cluster: Cluster) -> Iterator[None]:
    """A namespace whose claims may have admin access."""
    cluster.install_carina()
    cluster.kubectl("create", "namespace", _NAMESPACE)
    label = "resource.kubernetes.io/admin-access=true"
    cluster.kubectl("label", "namespace", _NAMESPACE, label)
    yield
    cluster.kubectl("delete", "namespace", _NAMESPACE, "--wait=false")


def _create(cluster: Cluster, *requests: Mapping[str, object], template: bool = False) -> str:
    """Creates a claim, or a template of it, in a dry run."""
    spec: Mapping[str, object] = {"devices": {"requests": list(requests)}}
    manifest = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate" if template else "ResourceClaim",
        "metadata": {"name": "claim", "namespace": _NAMESPACE},
        "spec": {"spec": spec} if template else spec,
    }
    return cluster.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(manifest))


def _exactly(**fields: object) -> dict[str, object]:
    return {"name": "gpus", "exactly": {"deviceClassName": _CLASS, **fields}}


_OTHER: Mapping[str, object] = {"name": "gpu", "exactly": {"deviceClassName": "gpu.carina.dev"}}


@pytest.mark.parametrize("template", [False, True], ids=["claim", "template"])
def test_admin_access_is_accepted(cluster: Cluster, *, template: bool) -> None:
    monitor = _exactly(allocationMode="All", adminAccess=True)
    assert "created" in _create(cluster, _OTHER, monitor, template=template)


@pytest.mark.parametrize("template", [False, True], ids=["claim", "template"])
@pytest.mark.parametrize("fields", [{}, {"adminAccess": False}], ids=["unset", "false"])
def test_claim_without_admin_access_is_refused(
    cluster: Cluster, fields: Mapping[str, object], *, template: bool
) -> None:
    with pytest.raises(KubectlError, match=_REFUSED):
        _create(cluster, _OTHER, _exactly(**fields), template=template)


def test_class_cannot_be_an_alternative(cluster: Cluster) -> None:
    alternatives = [
        {"name": "first", "deviceClassName": "gpu.carina.dev"},
        {"name": "second", "deviceClassName": _CLASS},
    ]
    with pytest.raises(KubectlError, match="cannot be an alternative in firstAvailable"):
        _create(cluster, {"name": "gpus", "firstAvailable": alternatives})


def test_claims_of_other_classes_need_no_admin_access(cluster: Cluster) -> None:
    alternative = {"name": "first", "deviceClassName": "gpu.carina.dev"}
    assert "created" in _create(cluster, _OTHER, {"name": "any", "firstAvailable": [alternative]})


def test_policy_holds_for_every_class_with_the_label(cluster: Cluster) -> None:
    own = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "own", "labels": {"carina.dev/requires": "admin-access"}},
        "spec": {},
    }
    cluster.apply(own)
    try:
        wait_for(
            "the policy to hold for the new class",
            lambda: _is_refused(cluster, _exactly(deviceClassName="own")),
        )
    finally:
        cluster.kubectl("delete", "deviceclass", "own")


def _is_refused(cluster: Cluster, request: Mapping[str, object]) -> bool:
    try:
        _create(cluster, request)
    except KubectlError as error:
        return 'DeviceClass "own" needs admin access' in str(error)
    return False
