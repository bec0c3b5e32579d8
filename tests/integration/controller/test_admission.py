"""What the policies of deploy/ do with pods and claims of queues, shown with users' own tokens.

The tenant may do everything in its namespace. The controller has the permission on which the
policies rely, and a name of which they know nothing.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest

from controller.engine.model.queue import QUEUE_LABEL
from controller.names import (
    DELETE_PROTECTION,
    EXPIRES_ANNOTATION,
    GATE,
    GROUP,
    GROUP_LABEL,
    MIN_COUNT_ANNOTATION,
    NODE_ANNOTATION,
    ON_DEVICE_FAILURE_ANNOTATION,
    POD_SET_LABEL,
    PREEMPTIBLE_ANNOTATION,
    RUN_TIME_ANNOTATION,
    STARTED_WITH_ANNOTATION,
    TAINT,
)
from controller.observe.owners import job_set, leader_worker_set
from simulation.kubernetes.cluster import DEPLOY, Cluster, KubectlError
from simulation.kubernetes.process import wait_for

_NAMESPACE, _OTHER_NAMESPACE = "queue-tenant", "queue-neighbour"
_QUEUE, _OTHER_QUEUE = "tenants", "tenants-other"
_NODE = "queue-node"
_OTHER_GATE = "example.com/quota"
_SLASH: Final = "~1"
_NUMBERS = count()


@dataclass(frozen=True, slots=True)
class _User:
    """kubectl with somebody's permissions, in the tenant's namespace."""

    cluster: Cluster
    kubeconfig: Path | None

    def kubectl(self, *arguments: str, stdin: Mapping[str, object] | None = None) -> str:
        return self.cluster.kubectl(
            *("--namespace", _NAMESPACE, *arguments),
            stdin=None if stdin is None else json.dumps(stdin),
            kubeconfig=self.kubeconfig,
        )

    def create(self, body: Mapping[str, object], *, dry_run: bool = True) -> dict[str, Any]:
        options = ("--dry-run=server",) if dry_run else ()
        made = self.kubectl("create", *options, "-f", "-", "-o", "json", stdin=body)
        created: dict[str, Any] = json.loads(made)
        return created

    def patch(self, what: str, patch: object, *options: str) -> dict[str, Any]:
        """A JSON patch if it is a list, and a merge patch otherwise; a dry run."""
        kind = "json" if isinstance(patch, list) else "merge"
        command = ("patch", what, f"--type={kind}", f"--patch={json.dumps(patch)}")
        patched: dict[str, Any] = json.loads(
            self.kubectl(*command, "--dry-run=server", "-o", "json", *options)
        )
        return patched


@pytest.fixture(scope="module", autouse=True)
def installed(cluster: Cluster) -> Iterator[None]:
    """Carina, queues, and a namespace with a tenant."""
    cluster.install_carina()
    for namespace in (_NAMESPACE, _OTHER_NAMESPACE):
        cluster.create_namespace(namespace)
    cluster.kubectl("label", "namespace", _NAMESPACE, "tier=a")
    for_all: dict[str, object] = {"selector": {}}
    queues = [_queue(name, namespaces=for_all) for name in (_QUEUE, _OTHER_QUEUE)]
    cluster.apply(*queues, *_accounts())
    yield
    cluster.kubectl("delete", "queue", "--all")
    cluster.kubectl("delete", "namespace", _NAMESPACE, _OTHER_NAMESPACE, "--wait=false")


@pytest.fixture(scope="module")
def tenant(cluster: Cluster) -> _User:
    """Who may do everything in one namespace."""
    return _User(cluster, cluster.service_account_credentials(_NAMESPACE, "tenant").kubeconfig)


@pytest.fixture(scope="module")
def controller(cluster: Cluster) -> _User:
    """Who has the permissions of Carina's controller."""
    credentials = cluster.service_account_credentials(_OTHER_NAMESPACE, "any-name")
    return _User(cluster, credentials.kubeconfig)


@pytest.fixture(scope="module")
def admin(cluster: Cluster) -> _User:
    """Who may do everything in the cluster."""
    return _User(cluster, None)


@pytest.fixture
def gated(tenant: _User) -> str:
    """A pod that waits in its queue, as `pod/NAME`."""
    labels = {GROUP_LABEL: "group", POD_SET_LABEL: "workers"}
    body = _pod(gates=[_OTHER_GATE], **labels)
    body["metadata"]["annotations"] = {
        PREEMPTIBLE_ANNOTATION: "true", MIN_COUNT_ANNOTATION: "2", "example.com/own": "b",
    }  # fmt: skip
    made = tenant.create(body, dry_run=False)
    return f"pod/{made['metadata']['name']}"


@pytest.fixture
def claim(tenant: _User) -> str:
    """A claim that waits in its queue, as `resourceclaim/NAME`."""
    made = tenant.create(_claim(), dry_run=False)
    return f"resourceclaim/{made['metadata']['name']}"


# What is added ------------------------------------------------------------------------------------


def test_a_pod_of_a_queue_gets_the_gate_beside_its_own(tenant: _User) -> None:
    assert _gates(tenant.create(_pod(gates=[_OTHER_GATE]))) == {_OTHER_GATE, GATE}


def test_a_pod_that_has_the_gate_keeps_one(tenant: _User) -> None:
    assert _gates(tenant.create(_pod(gates=[GATE]))) == {GATE}


def test_a_pod_without_a_queue_gets_no_gate(tenant: _User) -> None:
    assert _gates(tenant.create(_pod(queue=None))) == set()


def test_a_claim_of_a_queue_gets_the_finalizer_beside_its_own(tenant: _User) -> None:
    body = _claim()
    body["metadata"]["finalizers"] = ["example.com/own"]

    finalizers = tenant.create(body)["metadata"]["finalizers"]

    assert sorted(finalizers) == ["example.com/own", DELETE_PROTECTION]


def test_a_claim_without_a_queue_gets_no_finalizer(tenant: _User) -> None:
    assert "finalizers" not in tenant.create(_claim(queue=None))["metadata"]


def test_pods_and_claims_that_kubernetes_creates_get_both(cluster: Cluster, tenant: _User) -> None:
    if not cluster.controllers_run:
        pytest.skip("pods and claims are created by controllers, and here is only an API server")
    tenant.create(_template("for-job"), dry_run=False)
    tenant.create(_job("job", claim_template="for-job"), dry_run=False)
    tenant.kubectl("wait", "--for=create", "pod", "-l", "job-name=job")
    (pod,) = json.loads(tenant.kubectl("get", "pods", "-l", "job-name=job", "-o", "json"))["items"]
    name = pod["metadata"]["name"]
    status = "jsonpath={.status.resourceClaimStatuses[0].resourceClaimName}"
    tenant.kubectl("wait", f"pod/{name}", f"--for={status}")
    claim = tenant.kubectl("get", f"pod/{name}", "-o", status)
    made = json.loads(tenant.kubectl("get", f"resourceclaim/{claim}", "-o", "json"))

    assert _gates(pod) == {GATE}
    assert made["metadata"]["finalizers"] == [DELETE_PROTECTION]


# What a tenant cannot do --------------------------------------------------------------------------


def _label(key: str, value: str | None) -> dict[str, Any]:
    return {"metadata": {"labels": {key: value}}}


def _annotation(key: str, value: str | None) -> dict[str, Any]:
    return {"metadata": {"annotations": {key: value}}}


_ON_NODE = {
    "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [_NODE]}]}
        ]
    }
}
_STARTED: Final = {NODE_ANNOTATION: _NODE, PREEMPTIBLE_ANNOTATION: "false"}
_ESCAPES: Final[Mapping[str, tuple[object, str]]] = {
    "take the gate": (
        [{"op": "remove", "path": "/spec/schedulingGates"}],
        f"the scheduling gate {GATE} is removed by the controller",
    ),
    "take the gate and leave the queue": (
        [
            {"op": "remove", "path": "/spec/schedulingGates"},
            {"op": "remove", "path": f"/metadata/labels/{QUEUE_LABEL.replace('/', _SLASH)}"},
        ],
        f"the label {QUEUE_LABEL} cannot be changed",
    ),
    "leave the queue": (_label(QUEUE_LABEL, None), f"the label {QUEUE_LABEL} cannot be changed"),
    "change the queue": (
        _label(QUEUE_LABEL, _OTHER_QUEUE),
        f"the label {QUEUE_LABEL} cannot be changed",
    ),
    "leave the group": (_label(GROUP_LABEL, None), f"the label {GROUP_LABEL} cannot be changed"),
    "change the group": (_label(GROUP_LABEL, "a"), f"the label {GROUP_LABEL} cannot be changed"),
    "change the pod set": (
        _label(POD_SET_LABEL, "a"),
        f"the label {POD_SET_LABEL} cannot be changed",
    ),
    "join a JobSet": (
        _label(job_set.NAME, "a"),
        f"the label {job_set.NAME} cannot be changed",
    ),
    "join a LeaderWorkerSet": (
        _label(leader_worker_set.NAME, "a"),
        f"the label {leader_worker_set.NAME} cannot be changed",
    ),
    "join another replica": (
        _label(leader_worker_set.GROUP_INDEX, "1"),
        f"the label {leader_worker_set.GROUP_INDEX} cannot be changed",
    ),
    "change the size of the replica": (
        _annotation(leader_worker_set.SIZE, "1"),
        f"the annotation {leader_worker_set.SIZE} cannot be changed",
    ),
    "not be evicted": (
        _annotation(PREEMPTIBLE_ANNOTATION, "false"),
        f"the annotation {PREEMPTIBLE_ANNOTATION} cannot be changed",
    ),
    "say nothing of evictions": (
        _annotation(PREEMPTIBLE_ANNOTATION, None),
        f"the annotation {PREEMPTIBLE_ANNOTATION} cannot be changed",
    ),
    "start with fewer": (
        _annotation(MIN_COUNT_ANNOTATION, "1"),
        f"the annotation {MIN_COUNT_ANNOTATION} cannot be changed",
    ),
    "promise to end soon": (
        _annotation(RUN_TIME_ANNOTATION, "1m"),
        f"the annotation {RUN_TIME_ANNOTATION} cannot be changed",
    ),
    "ask to be replaced": (
        _annotation(ON_DEVICE_FAILURE_ANNOTATION, "replace"),
        f"the annotation {ON_DEVICE_FAILURE_ANNOTATION} cannot be changed",
    ),
    "say what it started with": (
        _annotation(STARTED_WITH_ANNOTATION, "9"),
        f"the annotation {STARTED_WITH_ANNOTATION} cannot be changed",
    ),
    "name the node": (
        _annotation(NODE_ANNOTATION, _NODE),
        f"the annotation {NODE_ANNOTATION} is written by the controller",
    ),
    "select the node": (
        {"spec": {"nodeSelector": {"kubernetes.io/hostname": _NODE}}},
        "spec.nodeSelector and spec.affinity cannot be changed",
    ),
    "pin the node": (
        {"spec": {"affinity": {"nodeAffinity": _ON_NODE}}},
        "spec.nodeSelector and spec.affinity cannot be changed",
    ),
}


@pytest.mark.parametrize(("patch", "message"), _ESCAPES.values(), ids=list(_ESCAPES))
def test_a_pod_cannot_escape_from_its_queue(
    tenant: _User, gated: str, patch: object, message: str
) -> None:
    with pytest.raises(KubectlError, match=message):
        tenant.patch(gated, patch)


def test_the_message_names_the_pod(tenant: _User, gated: str) -> None:
    name = gated.removeprefix("pod/")
    with pytest.raises(KubectlError, match=f'pod "{name}": the label'):
        tenant.patch(gated, _label(QUEUE_LABEL, None))


def test_a_pod_cannot_escape_by_a_write_of_its_status(tenant: _User, gated: str) -> None:
    with pytest.raises(KubectlError, match=f"the label {QUEUE_LABEL} cannot be changed"):
        tenant.patch(gated, _label(QUEUE_LABEL, None), "--subresource=status")


def test_annotations_cannot_be_changed_by_a_write_of_the_status(tenant: _User, gated: str) -> None:
    with pytest.raises(KubectlError, match=f"the annotation {MIN_COUNT_ANNOTATION} cannot be"):
        tenant.patch(gated, _annotation(MIN_COUNT_ANNOTATION, "1"), "--subresource=status")


def test_a_pod_with_very_many_annotations_is_judged_as_others(tenant: _User) -> None:
    body = _pod()
    body["metadata"]["annotations"] = {f"{number:x}": "" for number in range(20_000)}
    pod = f"pod/{tenant.create(body, dry_run=False)['metadata']['name']}"

    assert tenant.patch(pod, _annotation("example.com/own", "a"))
    with pytest.raises(KubectlError, match=f"the annotation {MIN_COUNT_ANNOTATION} cannot be"):
        tenant.patch(pod, _annotation(MIN_COUNT_ANNOTATION, "1"))


def test_very_many_annotations_of_the_domain_are_judged_soon(tenant: _User) -> None:
    body = _pod()
    body["metadata"]["annotations"] = {f"{GROUP}/{number:x}": "" for number in range(9_000)}
    pod = f"pod/{tenant.create(body, dry_run=False)['metadata']['name']}"

    assert tenant.patch(pod, _annotation("example.com/own", "a"), "--request-timeout=5s")


def test_as_many_annotations_as_possible_do_not_keep_a_pod_from_changing(tenant: _User) -> None:
    body = _pod()
    body["metadata"]["annotations"] = {f"{number:x}": "" for number in range(50_000)}
    pod = f"pod/{tenant.create(body, dry_run=False)['metadata']['name']}"

    assert tenant.patch(pod, _label("example.com/own", "a"))


def test_a_pod_cannot_come_into_a_queue_later(tenant: _User) -> None:
    name = tenant.create(_pod(queue=None), dry_run=False)["metadata"]["name"]

    with pytest.raises(KubectlError, match="nor a pod be put into a queue: delete the pod"):
        tenant.patch(f"pod/{name}", _label(QUEUE_LABEL, _QUEUE))


def test_a_pod_of_a_queue_cannot_name_its_node(tenant: _User) -> None:
    with pytest.raises(KubectlError, match=f'spec.nodeName is "{_NODE}", which bypasses the queue'):
        tenant.create(_pod(node=_NODE))


def test_a_pod_cannot_be_created_as_started(tenant: _User) -> None:
    body = _pod()
    body["metadata"]["annotations"] = {NODE_ANNOTATION: _NODE}

    with pytest.raises(KubectlError, match=f"{NODE_ANNOTATION} is written by the controller"):
        tenant.create(body)


@pytest.mark.parametrize(
    "queue", [None, _OTHER_QUEUE], ids=["remove the label", "change the label"]
)
def test_a_claim_cannot_escape_from_its_queue(tenant: _User, claim: str, queue: str | None) -> None:
    with pytest.raises(KubectlError, match=f"the label {QUEUE_LABEL} cannot be changed, added or"):
        tenant.patch(claim, _label(QUEUE_LABEL, queue))


def test_a_claim_cannot_come_into_a_queue_later(tenant: _User) -> None:
    name = tenant.create(_claim(queue=None), dry_run=False)["metadata"]["name"]

    with pytest.raises(KubectlError, match=f"the label {QUEUE_LABEL} cannot be changed, added or"):
        tenant.patch(f"resourceclaim/{name}", _label(QUEUE_LABEL, _QUEUE))


@pytest.fixture
def expiring(tenant: _User) -> str:
    """A claim that holds its devices for a time, as `resourceclaim/NAME`."""
    body = _claim()
    body["metadata"]["annotations"] = {EXPIRES_ANNOTATION: "8h"}
    return f"resourceclaim/{tenant.create(body, dry_run=False)['metadata']['name']}"


_LATER: Final = {
    "change": (EXPIRES_ANNOTATION, "9h"),
    "remove": (EXPIRES_ANNOTATION, None),
}


@pytest.mark.parametrize(("annotation", "value"), _LATER.values(), ids=list(_LATER))
def test_what_a_claim_asks_for_cannot_be_changed_later(
    tenant: _User, expiring: str, annotation: str, value: str | None
) -> None:
    name = expiring.removeprefix("resourceclaim/")
    message = f'claim "{name}": the annotation {annotation} cannot be changed, added or removed'
    with pytest.raises(KubectlError, match=message):
        tenant.patch(expiring, _annotation(annotation, value))


@pytest.mark.parametrize("api_version", ["v1", "example.com/v1"])
def test_a_claim_of_a_queue_does_not_become_that_of_another_pod(
    tenant: _User, api_version: str
) -> None:
    """It would count with that pod. Some of those who look at owners compare only the UID."""
    claim, other = _owned(tenant, _QUEUE, api_version), _owner(tenant)
    owners = [other] if api_version == "v1" else [{**_owner_of(tenant, claim), "apiVersion": "v1"}]
    with pytest.raises(KubectlError, match=_NO_OTHER_POD):
        tenant.patch(claim, {"metadata": {"ownerReferences": owners}})


def test_a_claim_of_a_queue_may_lose_its_pod(tenant: _User) -> None:
    """As the garbage collector has it, when a pod is deleted and leaves its claims."""
    assert tenant.patch(_owned(tenant, _QUEUE), {"metadata": {"ownerReferences": []}})


def test_a_claim_of_a_queue_may_get_other_owners(tenant: _User) -> None:
    claim, pod = _owned(tenant, _QUEUE), _owner(tenant)
    owner = _owner_of(tenant, claim)
    others = [{**pod, "controller": False, "uid": f"{number}"} for number in range(700)]
    assert tenant.patch(
        claim, {"metadata": {"ownerReferences": [owner, *others]}}, "--request-timeout=5s"
    )


def test_a_claim_cannot_begin_to_expire_later(tenant: _User, claim: str) -> None:
    with pytest.raises(KubectlError, match=f"the annotation {EXPIRES_ANNOTATION} cannot be"):
        tenant.patch(claim, _annotation(EXPIRES_ANNOTATION, "8h"))


@pytest.mark.parametrize("prefix", ["", f"{GROUP}/"])
def test_very_many_annotations_do_not_keep_a_claim_from_changing(
    tenant: _User, prefix: str
) -> None:
    """Its devices could not be taken back, and the API server would be occupied for long."""
    body = _claim()
    body["metadata"]["annotations"] = {f"{prefix}{number:x}": "" for number in range(9_000)}
    claim = f"resourceclaim/{tenant.create(body, dry_run=False)['metadata']['name']}"

    assert tenant.patch(claim, _annotation("example.com/own", "a"), "--request-timeout=5s")
    with pytest.raises(KubectlError, match=f"the annotation {EXPIRES_ANNOTATION} cannot be"):
        tenant.patch(claim, _annotation(EXPIRES_ANNOTATION, "1h"))


def test_a_write_of_its_status_does_not_change_it_either(tenant: _User, expiring: str) -> None:
    later = _annotation(EXPIRES_ANNOTATION, "9h")
    written = tenant.patch(expiring, later, "--subresource=status")
    assert written["metadata"]["annotations"] == {EXPIRES_ANNOTATION: "8h"}


def test_all_annotations_of_a_claim_cannot_be_removed(tenant: _User, expiring: str) -> None:
    remove = [{"op": "remove", "path": "/metadata/annotations"}]
    with pytest.raises(KubectlError, match=f"the annotation {EXPIRES_ANNOTATION} cannot be"):
        tenant.patch(expiring, remove)


def test_an_administrator_can_change_how_long_a_claim_holds(admin: _User, expiring: str) -> None:
    assert admin.patch(expiring, _annotation(EXPIRES_ANNOTATION, "1h"))


def test_other_annotations_of_a_claim_can_be_changed(
    tenant: _User, claim: str, expiring: str
) -> None:
    for each in (claim, expiring):
        assert tenant.patch(each, _annotation("example.com/own", "a"))


def test_annotations_of_a_claim_without_a_queue_are_its_own(tenant: _User) -> None:
    name = tenant.create(_claim(queue=None), dry_run=False)["metadata"]["name"]
    assert tenant.patch(f"resourceclaim/{name}", _annotation(EXPIRES_ANNOTATION, "8h"))


# What everybody can do as before ------------------------------------------------------------------


@pytest.mark.parametrize(
    "patch",
    [
        _label("example.com/own", "a"),
        _annotation("example.com/own", "a"),
        _annotation("example.com/own", None),
        _annotation("example.com/scheduling.carina.dev", "a"),
        _annotation(MIN_COUNT_ANNOTATION, "2"),
        {"spec": {"schedulingGates": [{"name": GATE}]}},
        {"spec": {"tolerations": [{"key": "example.com/a", "operator": "Exists"}]}},
    ],
    ids=[
        "label",
        "annotation",
        "no annotation",
        "an annotation that looks similar",
        "an annotation as it is",
        "take the own gate",
        "toleration",
    ],
)
def test_a_tenant_can_change_what_is_its_own(tenant: _User, gated: str, patch: object) -> None:
    assert tenant.patch(gated, patch)


def test_a_tenant_can_delete_a_pod_that_waits(tenant: _User, gated: str) -> None:
    assert "deleted" in tenant.kubectl("delete", gated, "--now")


@pytest.mark.parametrize(
    "patch",
    [
        {"spec": {"schedulingGates": []}},
        {"spec": {"nodeSelector": {"kubernetes.io/hostname": _NODE}}},
        _label(GROUP_LABEL, "a"),
        _annotation(NODE_ANNOTATION, _NODE),
        _annotation(MIN_COUNT_ANNOTATION, "1"),
    ],
    ids=["gate", "node selector", "group", "node", "minimum"],
)
def test_pods_without_a_queue_are_nobodys_business(tenant: _User, patch: object) -> None:
    body = _pod(queue=None, gates=[_OTHER_GATE])
    name = tenant.create(body, dry_run=False)["metadata"]["name"]

    assert tenant.patch(f"pod/{name}", patch)


def test_the_controller_ungates_pins_and_annotates_in_one_patch(
    controller: _User, gated: str
) -> None:
    started = controller.patch(gated, _start(_OTHER_GATE))

    assert _gates(started) == {_OTHER_GATE}
    assert started["metadata"]["annotations"] == _STARTED
    assert started["spec"]["affinity"]["nodeAffinity"] == _ON_NODE


def test_an_administrator_can_take_the_gate(admin: _User, gated: str) -> None:
    assert _gates(admin.patch(gated, [{"op": "remove", "path": "/spec/schedulingGates"}])) == set()


def test_scheduler_and_kubelet_go_on_with_a_pod_that_was_started(
    cluster: Cluster, tenant: _User, controller: _User
) -> None:
    if not cluster.controllers_run:
        pytest.skip("there is no kube-scheduler")
    cluster.add_fake_nodes([_NODE])
    try:
        pod = f"pod/{tenant.create(_pod(), dry_run=False)['metadata']['name']}"
        controller.kubectl("patch", pod, "--type=json", f"--patch={json.dumps(_start())}")
        tenant.kubectl("wait", pod, "--for=condition=PodScheduled", "--timeout=30s")
        running = json.loads(tenant.kubectl("get", pod, "-o", "json"))
        running["status"]["phase"] = "Running"
        kubelet = ("--as", f"system:node:{_NODE}", "--as-group", "system:nodes")
        path = f"/api/v1/namespaces/{_NAMESPACE}/pods/{running['metadata']['name']}/status"
        cluster.kubectl("replace", "--raw", path, "-f", "-", *kubelet, stdin=json.dumps(running))
        phase = tenant.kubectl("get", pod, "-o", "jsonpath={.spec.nodeName} {.status.phase}")
    finally:
        cluster.kubectl("delete", "node", _NODE)

    assert phase == f"{_NODE} Running"


@pytest.mark.parametrize(
    ("verb", "resource", "role", "may"),
    [
        ("create", "podgroups.scheduling.carina.dev", "edit", True),
        ("create", "podgroups.scheduling.carina.dev", "view", False),
        ("list", "podgroups.scheduling.carina.dev", "view", True),
        ("list", "queues", "view", True),
        ("create", "queues", "admin", False),
        ("update", "queues --subresource=status", "admin", False),
        ("update", "podgroups.scheduling.carina.dev --subresource=status", "admin", False),
    ],
)
def test_users_may_make_groups_and_see_queues(
    cluster: Cluster, verb: str, resource: str, role: str, may: bool
) -> None:
    if not cluster.controllers_run:
        pytest.skip("a controller aggregates roles, and here is only an API server")
    user = f"user-with-{role}"
    cluster.apply(
        {
            **_rbac("ClusterRoleBinding", user, **_bound("ClusterRole", role, _NAMESPACE)),
            "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}],
        }
    )
    as_user = ("auth", "can-i", verb, *resource.split(), "--namespace", _NAMESPACE, "--as", user)

    def answer() -> str:
        try:
            return cluster.kubectl(*as_user).strip()
        except KubectlError:  # "no" is a failure, too
            return "no"

    wait_for("the binding to be in force", lambda: _can_view(cluster, user))
    assert (answer() == "yes") == may


def _can_view(cluster: Cluster, user: str) -> bool:
    can_view = ("auth", "can-i", "list", "podgroups.scheduling.carina.dev", "-n", _NAMESPACE)
    try:
        return cluster.kubectl(*can_view, "--as", user).strip() == "yes"
    except KubectlError:
        return False


# Who may use a queue ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def closed(cluster: Cluster, tenant: _User) -> str:
    """A queue for another namespace, which is in force."""
    cluster.apply(_queue("closed", namespaces={"names": [_OTHER_NAMESPACE]}))
    _await_refusal(tenant, _pod("closed"), "closed")
    _await_refusal(tenant, _template("t", "closed"), "closed")
    return "closed"


@pytest.mark.parametrize("kind", ["pod", "claim", "template"])
def test_a_namespace_that_a_queue_does_not_name_cannot_use_it(
    tenant: _User, closed: str, kind: str
) -> None:
    bodies = {"pod": _pod(closed), "claim": _claim(closed), "template": _template("t", closed)}

    with pytest.raises(KubectlError, match=_not_allowed(closed)):
        tenant.create(bodies[kind])


@pytest.mark.parametrize("kind", ["pod", "claim", "template"])
def test_a_namespace_can_use_a_queue_that_selects_all(
    tenant: _User, closed: str, kind: str
) -> None:
    bodies = {"pod": _pod(), "claim": _claim(), "template": _template("t")}

    assert tenant.create(bodies[kind])


def test_a_pod_of_an_unknown_queue_waits_for_it(tenant: _User, closed: str) -> None:
    assert _gates(tenant.create(_pod("no-such-queue"))) == {GATE}


@pytest.mark.parametrize(
    ("namespaces", "allowed"),
    [
        (None, False),
        ({"names": [_NAMESPACE]}, True),
        ({"selector": {}}, True),
        ({"selector": {"matchLabels": {"tier": "a"}}}, True),
        ({"selector": {"matchLabels": {"tier": "b"}}}, False),
        ({"selector": {"matchLabels": {"tier": "a", "zone": "x"}}}, False),
        ({"names": [_OTHER_NAMESPACE], "selector": {"matchLabels": {"tier": "a"}}}, True),
        ({"names": [_NAMESPACE], "selector": {"matchLabels": {"tier": "b"}}}, True),
        *(
            (
                {"selector": {"matchExpressions": [{"key": key, "operator": operator, **more}]}},
                is_ok,
            )
            for key, operator, more, is_ok in (
                ("tier", "In", {"values": ["a", "b"]}, True),
                ("tier", "In", {"values": ["b"]}, False),
                ("zone", "In", {"values": ["a"]}, False),
                ("tier", "NotIn", {"values": ["b"]}, True),
                ("tier", "NotIn", {"values": ["a"]}, False),
                ("zone", "NotIn", {"values": ["a"]}, True),
                ("tier", "Exists", {}, True),
                ("zone", "Exists", {}, False),
                ("zone", "DoesNotExist", {}, True),
                ("tier", "DoesNotExist", {}, False),
            )
        ),
    ],
)
def test_a_queue_selects_namespaces_by_name_and_labels(
    cluster: Cluster, tenant: _User, namespaces: Mapping[str, Any] | None, allowed: bool
) -> None:
    # A second queue that refuses says when the API server knows both.
    queue, last = f"selecting-{next(_NUMBERS)}", f"last-{next(_NUMBERS)}"
    spec = {} if namespaces is None else {"namespaces": namespaces}
    cluster.apply(_queue(queue, **spec))
    cluster.apply(_queue(last, namespaces={"names": [_OTHER_NAMESPACE]}))
    _await_refusal(tenant, _pod(last), last)

    if allowed:
        assert tenant.create(_pod(queue))
    else:
        with pytest.raises(KubectlError, match=_not_allowed(queue)):
            tenant.create(_pod(queue))


@pytest.mark.parametrize(
    ("priorities", "allowed"),
    [
        ({"max": 1000}, True),
        ({"min": 1000}, True),
        ({"min": 0, "max": 2000}, True),
        ({"max": 999}, False),
        ({"min": 1001}, False),
        ({"min": 1001, "max": 2000}, False),
    ],
)
def test_a_queue_refuses_pods_of_other_priorities_than_it_allows(
    cluster: Cluster, tenant: _User, priorities: Mapping[str, int], allowed: bool
) -> None:
    queue, last = f"ranked-{next(_NUMBERS)}", f"last-{next(_NUMBERS)}"
    cluster.apply(_priority_class("thousand", 1000))
    cluster.apply(_queue(queue, namespaces={"selector": {}}, priorities=priorities))
    cluster.apply(_queue(last, namespaces={"names": [_OTHER_NAMESPACE]}))
    _await_refusal(tenant, _pod(last), last)
    body = _pod(queue)
    body["spec"]["priorityClassName"] = "thousand"

    if allowed:
        assert tenant.create(body)
    else:
        with pytest.raises(KubectlError) as refused:
            tenant.create(body)
        bounds = " and ".join(
            f"at {word} {priorities[key]}"
            for key, word in (("min", "least"), ("max", "most"))
            if key in priorities
        )
        assert (
            f'Queue "{queue}" does not allow pods of priority 1000: set a priorityClassName whose '
            f"value is {bounds}"
        ) in str(refused.value)


def test_a_claim_has_no_priority_that_a_queue_could_refuse(cluster: Cluster, tenant: _User) -> None:
    queue, last = f"ranked-{next(_NUMBERS)}", f"last-{next(_NUMBERS)}"
    cluster.apply(_queue(queue, namespaces={"selector": {}}, priorities={"min": 1}))
    cluster.apply(_queue(last, namespaces={"names": [_OTHER_NAMESPACE]}))
    _await_refusal(tenant, _pod(last), last)

    assert tenant.create(_claim(queue))


def _await_refusal(user: _User, body: Mapping[str, object], queue: str) -> None:
    def is_refused() -> bool:
        try:
            user.create(body)
        except KubectlError as error:
            return _not_allowed(queue) in str(error)
        return False

    wait_for(f"Queue {queue} to be in force", is_refused)


def _not_allowed(queue: str) -> str:
    return f'Queue "{queue}" does not allow namespace "{_NAMESPACE}": name another queue'


# Exclusive ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def exclusive(cluster: Cluster, tenant: _User) -> Iterator[None]:
    """The policies of the component, which other tests must not meet."""
    policies = [
        str(DEPLOY / "exclusive" / f"{name}.yaml") for name in ("no-shared-claims", "no-toleration")
    ]
    for policy in policies:
        cluster.kubectl("apply", "-f", policy)

    def are_refused() -> bool:
        tolerating = _claim(tolerations=[{"key": TAINT, "operator": "Exists"}])
        refusals = {"a toleration matches the taint": tolerating, _SHARED: _pod(None, claim="c")}
        return all(text in _refusal(tenant, body) for text, body in refusals.items())

    wait_for("the policies to be in force", are_refused)
    yield
    for policy in policies:
        cluster.kubectl("delete", "-f", policy)


def _refusal(user: _User, body: Mapping[str, object]) -> str:
    """Why an object is refused; empty if it is not."""
    try:
        user.create(body)
    except KubectlError as error:
        return str(error)
    return ""


_MATCHING: Final[Sequence[Mapping[str, str]]] = (
    {"key": TAINT, "operator": "Exists"},
    {"key": TAINT, "operator": "Exists", "effect": "NoSchedule"},
    {"key": TAINT, "operator": "Equal", "value": "true"},
    {"key": TAINT},
    {"operator": "Exists"},
    {"operator": "Exists", "effect": "NoSchedule"},
)
_NO_OTHER_POD: Final = "a pod cannot become its controller"
_SHARED: Final = "only pods of a queue may name a ResourceClaim"
_SHAPES: Final = ("claim", "template", "alternative", "alternative of a template")


def _of_shape(shape: str, tolerations: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    match shape:
        case "claim":
            return _claim(tolerations=tolerations)
        case "alternative":
            return _claim(alternatives=True, tolerations=tolerations)
        case "template":
            return _template("t", tolerations=tolerations)
        case _:
            return _template("t", alternatives=True, tolerations=tolerations)


@pytest.mark.parametrize("shape", _SHAPES)
@pytest.mark.parametrize("toleration", _MATCHING, ids=json.dumps)
@pytest.mark.usefixtures("exclusive")
def test_no_claim_tolerates_the_taint(
    tenant: _User, shape: str, toleration: Mapping[str, str]
) -> None:
    other = {"key": "example.com/other", "operator": "Exists"}

    with pytest.raises(
        KubectlError, match=f'request "gpu": a toleration matches the taint {TAINT}'
    ):
        tenant.create(_of_shape(shape, [other, toleration]))


@pytest.mark.parametrize(
    "toleration",
    [
        {"key": "example.com/other", "operator": "Exists"},
        {"operator": "Exists", "effect": "NoExecute"},
        {"key": TAINT, "operator": "Exists", "effect": "NoExecute"},
    ],
    ids=json.dumps,
)
@pytest.mark.usefixtures("exclusive")
def test_tolerations_of_other_taints_are_accepted(
    tenant: _User, toleration: Mapping[str, str]
) -> None:
    assert tenant.create(_claim(tolerations=[toleration]))


@pytest.mark.usefixtures("exclusive")
def test_monitoring_sees_devices_with_the_taint(cluster: Cluster, tenant: _User) -> None:
    cluster.kubectl("label", "namespace", _NAMESPACE, "resource.kubernetes.io/admin-access=true")
    monitor = _claim(tolerations=[{"operator": "Exists"}])
    (request,) = monitor["spec"]["devices"]["requests"]
    request["exactly"]["adminAccess"] = True

    assert tenant.create(monitor)
    cluster.kubectl("label", "namespace", _NAMESPACE, "resource.kubernetes.io/admin-access-")


@pytest.mark.usefixtures("exclusive")
def test_no_claim_becomes_that_of_another_pod(tenant: _User) -> None:
    claim = _owned(tenant, None)
    with pytest.raises(KubectlError, match=_NO_OTHER_POD):
        tenant.patch(claim, {"metadata": {"ownerReferences": [_owner(tenant)]}})
    assert tenant.patch(claim, {"metadata": {"ownerReferences": []}})


@pytest.mark.usefixtures("exclusive")
def test_a_pod_without_a_queue_shares_no_claim(tenant: _User) -> None:
    with pytest.raises(KubectlError, match=f'resourceClaims "gpu": {_SHARED}'):
        tenant.create(_pod(None, claim="c"))
    assert tenant.create(_pod(claim="c"))
    assert tenant.create(_pod(None, claim_template="t"))
    assert tenant.create(_pod(None))


@pytest.mark.parametrize(
    "label",
    ["scheduling.carina.dev/shared-claims=allowed", "resource.kubernetes.io/admin-access=true"],
)
@pytest.mark.usefixtures("exclusive")
def test_pods_without_a_queue_share_claims_where_an_administrator_allows_it(
    cluster: Cluster, tenant: _User, label: str
) -> None:
    cluster.kubectl("label", "namespace", _NAMESPACE, label)
    try:
        wait_for("the label to be seen", lambda: not _refusal(tenant, _pod(None, claim="c")))
    finally:
        cluster.kubectl("label", "namespace", _NAMESPACE, f"{label.partition('=')[0]}-")
        wait_for("the label to be gone", lambda: _refusal(tenant, _pod(None, claim="c")))


@pytest.mark.usefixtures("exclusive")
def test_the_controller_may_tolerate_the_taint(controller: _User) -> None:
    assert controller.create(_claim(tolerations=[{"operator": "Exists"}]))


# Objects ------------------------------------------------------------------------------------------


def _queue(name: str, **spec: object) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.carina.dev/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": spec,
    }


def _priority_class(name: str, value: int) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    }


def _metadata(prefix: str, queue: str | None, **labels: str) -> dict[str, Any]:
    named = {} if queue is None else {QUEUE_LABEL: queue}
    name = f"{prefix}-{next(_NUMBERS)}"
    return {"name": name, "namespace": _NAMESPACE, "labels": {**named, **labels}}


def _pod(
    queue: str | None = _QUEUE,
    *,
    gates: Sequence[str] = (),
    node: str | None = None,
    claim: str | None = None,
    claim_template: str | None = None,
    **labels: str,
) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "containers": [{"name": "main", "image": "none"}],
        "schedulingGates": _gate_list(gates),
    }
    if node is not None:
        spec["nodeName"] = node
    if claim is not None:
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": claim}]
    if claim_template is not None:
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": claim_template}]
    metadata = _metadata("pod", queue, **labels)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _claim_spec(
    *, alternatives: bool = False, tolerations: Sequence[Mapping[str, str]] = ()
) -> dict[str, Any]:
    device = {"deviceClassName": "gpu.carina.dev", "tolerations": list(tolerations)}
    request = (
        {"name": "gpu", "firstAvailable": [{"name": "any", **device}]}
        if alternatives
        else {"name": "gpu", "exactly": device}
    )
    return {"devices": {"requests": [request]}}


def _claim(queue: str | None = _QUEUE, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": _metadata("claim", queue),
        "spec": _claim_spec(**spec),
    }


def _owner(tenant: _User) -> dict[str, Any]:
    """A new pod, as the controller of others."""
    metadata = tenant.create(_pod(), dry_run=False)["metadata"]
    name, uid = metadata["name"], metadata["uid"]
    return {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid, "controller": True}


def _owner_of(tenant: _User, claim: str) -> dict[str, Any]:
    (owner,) = json.loads(tenant.kubectl("get", claim, "-o", "json"))["metadata"]["ownerReferences"]
    return dict(owner)


def _owned(tenant: _User, queue: str | None, api_version: str = "v1") -> str:
    """A new claim that a pod controls, as `resourceclaim/NAME`."""
    body = _claim(queue)
    body["metadata"]["ownerReferences"] = [{**_owner(tenant), "apiVersion": api_version}]
    return f"resourceclaim/{tenant.create(body, dry_run=False)['metadata']['name']}"


def _template(name: str, queue: str = _QUEUE, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": _NAMESPACE},
        "spec": {"metadata": {"labels": {QUEUE_LABEL: queue}}, "spec": _claim_spec(**spec)},
    }


def _job(name: str, *, claim_template: str) -> dict[str, Any]:
    claims = [{"name": "gpu", "resourceClaimTemplateName": claim_template}]
    spec = {
        "restartPolicy": "Never",
        "resourceClaims": claims,
        "containers": [
            {"name": "main", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}
        ],
    }
    template = {"metadata": {"labels": {QUEUE_LABEL: _QUEUE}}, "spec": spec}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": _NAMESPACE},
        "spec": {"template": template},
    }


def _gates(pod: Mapping[str, Any]) -> set[str]:
    gates = [gate["name"] for gate in pod["spec"].get("schedulingGates", ())]
    assert len(set(gates)) == len(gates)
    return set(gates)


def _gate_list(names: Sequence[str]) -> list[dict[str, str]]:
    return [{"name": name} for name in names]


def _start(*other_gates: str) -> list[dict[str, Any]]:
    """The patch with which the controller starts a pod on a node. It keeps other gates."""
    return [
        {"op": "replace", "path": "/spec/schedulingGates", "value": _gate_list(other_gates)},
        {"op": "add", "path": "/spec/affinity", "value": {"nodeAffinity": _ON_NODE}},
        {"op": "add", "path": "/metadata/annotations", "value": _STARTED},
    ]


def _accounts() -> list[dict[str, Any]]:
    """The ServiceAccounts, and what they may do."""
    everything = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    of_controller = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "patch"]},
        {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims"], "verbs": ["create"]},
        {"apiGroups": ["scheduling.carina.dev"], "resources": ["pods/gate"], "verbs": ["remove"]},
    ]
    return [
        _account("tenant", _NAMESPACE),
        _account("any-name", _OTHER_NAMESPACE),
        _rbac("Role", "tenant", rules=[everything]),
        _rbac("RoleBinding", "tenant", **_bound("Role", "tenant", _NAMESPACE)),
        _rbac("ClusterRole", "any-name", rules=of_controller),
        _rbac(
            "ClusterRoleBinding", "any-name", **_bound("ClusterRole", "any-name", _OTHER_NAMESPACE)
        ),
    ]


def _account(name: str, namespace: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}


def _rbac(kind: str, name: str, **content: object) -> dict[str, Any]:
    metadata = (
        {"name": name} if kind.startswith("Cluster") else {"name": name, "namespace": _NAMESPACE}
    )
    version = "rbac.authorization.k8s.io/v1"
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **content}


def _bound(kind: str, name: str, namespace: str) -> dict[str, Any]:
    return {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
    }
