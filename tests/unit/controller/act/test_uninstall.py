"""What the controller leaves behind, and who still leads."""

from collections.abc import Iterator
from typing import Any

import pytest

from carina_dra.kube.api_resource import LEASES, NAMESPACES
from carina_dra.kube.body import Body, ObjectKey
from carina_dra.kube.client import Client, MergePatch
from controller.act.uninstall import (
    GatedPod,
    HeldClaim,
    HeldQueue,
    PolicyBinding,
    TaintRule,
    bindings,
    describe_use,
    held_queues,
    holder,
    in_use,
    remnants,
)
from controller.names import GATE, GROUP, QUEUE_FINALIZER, RESERVATIONS, TAINT
from simulation.api_server.api import Api
from simulation.api_server.server import ApiServer

_LEASE = ObjectKey("carina-system", "carina-controller")
_OWN = {"apiGroup": GROUP, "resource": RESERVATIONS, "name": "c", "uid": "c"}


def pod(name: str, *gates: str, claims: tuple[str, ...] = ("c",)) -> Body:
    return {
        "metadata": {"namespace": "t", "name": name, "uid": name},
        "spec": {
            "schedulingGates": [{"name": gate} for gate in gates],
            "resourceClaims": [{"name": claim, "resourceClaimName": claim} for claim in claims],
        },
    }


def claim(*users: object, allocated: bool = True) -> Body:
    status: Body = {"reservedFor": list(users)}
    if allocated:
        status["allocation"] = {"devices": {}}
    return {"metadata": {"namespace": "t", "name": "c", "uid": "c"}, "status": status}


def user(name: str) -> Body:
    return {"resource": "pods", "name": name, "uid": name}


HELD, RUNS, OTHER = pod("held", GATE), pod("runs"), pod("other", claims=())


def test_claims_with_devices_of_the_driver_are_in_use_unless_they_are_freed() -> None:
    def has(driver: str, name: str) -> Body:
        body = claim(user("runs"))
        body["metadata"] = {**body["metadata"], "name": name}
        body["status"]["allocation"] = {"devices": {"results": [{"driver": driver}]}}
        return body

    used, freed, foreign = has("d", "used"), has("d", "freed"), has("other", "foreign")
    waits = claim(allocated=False)
    claims = [used, freed, foreign, waits]

    left = [HeldClaim(freed, ()), HeldClaim(used, (user("runs"),))]
    assert list(in_use("d", claims, left)) == [used]
    assert describe_use(used) == "ResourceClaim t/used: in use by pods/runs"


def test_many_users_of_a_claim_are_counted() -> None:
    body = claim(*(user(name) for name in "abcde"))

    assert describe_use(body) == "ResourceClaim t/c: in use by pods/a, pods/b, pods/c and 2 more"


def test_queues_with_the_finalizer_of_the_controller_are_left() -> None:
    queues: list[Body] = [
        {"metadata": {"name": "a", "finalizers": ["example.com/other", QUEUE_FINALIZER]}},
        {"metadata": {"name": "b", "finalizers": ["example.com/other"]}},
        {"metadata": {"name": "c"}},
    ]
    assert list(held_queues(queues)) == [HeldQueue(queues[0])]


@pytest.mark.parametrize(
    ("users", "pods", "left"),
    [
        ([], [HELD], []),
        ([user("held")], [HELD], []),
        ([], [HELD, RUNS], None),
        ([user("runs")], [HELD, RUNS], None),
        ([], [RUNS], None),
        ([], [], None),
        ([user("gone")], [HELD], None),
        ([_OWN], [], []),
        ([_OWN], [HELD], []),
        ([_OWN, user("held")], [HELD], []),
        ([_OWN, user("runs")], [RUNS], [user("runs")]),
        ([_OWN, user("runs"), user("held")], [RUNS, HELD], [user("runs"), user("held")]),
    ],
)
def test_a_claim_keeps_its_devices_if_a_pod_may_use_them(
    users: list[Body], pods: list[Body], left: list[Body] | None
) -> None:
    held = [each for each in remnants([], [claim(*users)], pods) if isinstance(each, HeldClaim)]
    assert [list(each.users) for each in held] == ([] if left is None else [left])


def test_a_claim_without_devices_is_left_alone() -> None:
    assert [*remnants([], [claim(allocated=False)], [HELD])] == [GatedPod(HELD)]


def test_taint_goes_before_claims_and_these_before_pods() -> None:
    own: Body = {"metadata": {"name": "own"}, "spec": {"taint": {"key": TAINT}}}
    foreign: Body = {"metadata": {"name": "other"}, "spec": {"taint": {"key": "example.com/a"}}}
    found = remnants([foreign, own], [claim()], [OTHER, HELD])
    assert list(found) == [TaintRule(own), HeldClaim(claim(), ()), GatedPod(HELD)]


def test_only_policies_for_what_names_a_queue_are_taken_out_of_force() -> None:
    def policy(name: str, key: str) -> Body:
        selector = {"matchExpressions": [{"key": key, "operator": "Exists"}]}
        constraints = {"objectSelector": selector}
        return {"metadata": {"name": name}, "spec": {"matchConstraints": constraints}}

    def binding(name: str) -> Body:
        return {"metadata": {"name": f"of-{name}"}, "spec": {"policyName": name}}

    every: Body = {"metadata": {"name": "every"}, "spec": {}}
    policies = [policy("gate", GATE), policy("foreign", "example.com/a"), every]
    found = bindings(policies, [binding("gate"), binding("foreign"), binding("every")])
    assert list(found) == [PolicyBinding(binding("gate"))]


class _Time:
    """A clock that goes on when somebody waits."""

    def __init__(self) -> None:
        self.now = 100.0

    def wait(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def client() -> Iterator[Client]:
    with ApiServer(Api()) as server, Client(server.connection) as client:
        client.create(NAMESPACES, {"metadata": {"name": _LEASE.namespace}})
        yield client


def write_lease(client: Client, **spec: Any) -> None:
    body = {"metadata": {"namespace": _LEASE.namespace, "name": _LEASE.name}, "spec": spec}
    client.create(LEASES, body)


def test_nobody_leads_without_a_lease_or_a_holder(client: Client) -> None:
    time = _Time()
    assert holder(client, _LEASE, clock=lambda: time.now, wait=time.wait) is None
    write_lease(client, holderIdentity="", leaseDurationSeconds=1)
    assert holder(client, _LEASE, clock=lambda: time.now, wait=time.wait) is None
    assert time.now == 100.0


def test_who_does_not_renew_leads_until_the_lease_expires(client: Client) -> None:
    time = _Time()
    write_lease(client, holderIdentity="killed", leaseDurationSeconds=9)
    assert holder(client, _LEASE, clock=lambda: time.now, wait=time.wait) is None
    assert time.now == 109.0


def test_who_renews_the_lease_leads(client: Client) -> None:
    time = _Time()
    write_lease(client, holderIdentity="leader", leaseDurationSeconds=9)

    def renew(seconds: float) -> None:
        time.wait(seconds)
        renewed = MergePatch({"spec": {"renewTime": f"2026-01-01T00:00:{time.now - 100:09.6f}Z"}})
        client.patch(LEASES, _LEASE.name, renewed, namespace=_LEASE.namespace)

    assert holder(client, _LEASE, clock=lambda: time.now, wait=renew) == "leader"
