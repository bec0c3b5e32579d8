"""What Carina's controller leaves in a cluster, and how it is removed.

As long as the controller is installed, pods wait behind its gate and claims have its reservations.
Without it, nobody takes them away. What is left is found in the objects themselves, whatever the
controller knew of them, so that removal can be repeated until nothing is found.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeAlias, assert_never

from carina_dra.kube.api_resource import (
    DEVICE_TAINT_RULES,
    LEASES,
    PODS,
    RESOURCE_CLAIMS,
    ApiResource,
    Scope,
)
from carina_dra.kube.body import Body, ObjectKey, key_of, resource_version_of
from carina_dra.kube.client import Client, MergePatch, Preconditions
from carina_dra.kube.errors import NotFound, PathNotFound
from carina_dra.kube.lease import Observation, observe
from controller.engine.model.queue import QUEUE_LABEL
from controller.names import GATE, GROUP, QUEUE_FINALIZER, QUEUES, RESERVATIONS, TAINT
from controller.observe.pod import claims_of

_ADMISSION: Final = "admissionregistration.k8s.io"
POLICIES: Final = ApiResource(
    _ADMISSION, "v1", "mutatingadmissionpolicies", "MutatingAdmissionPolicy", Scope.CLUSTER
)
BINDINGS: Final = ApiResource(
    _ADMISSION,
    "v1",
    "mutatingadmissionpolicybindings",
    "MutatingAdmissionPolicyBinding",
    Scope.CLUSTER,
)
DEPLOYMENTS: Final = ApiResource("apps", "v1", "deployments", "Deployment", Scope.NAMESPACED)
_POLL_SECONDS: Final = 1.0
_USERS_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class PolicyBinding:
    """Puts a mutating policy of Carina in force: without the controller, its pods never start."""

    body: Body


@dataclass(frozen=True, slots=True)
class TaintRule:
    """Keeps everybody else's allocations off devices, in exclusive mode."""

    body: Body


@dataclass(frozen=True, slots=True)
class HeldClaim:
    """A claim that the controller has allocated or reserved for nobody who runs."""

    body: Body
    users: tuple[Body, ...]
    """The entries of `reservedFor` that stay; its devices are free if there are none."""


@dataclass(frozen=True, slots=True)
class GatedPod:
    """A pod that waits for the controller."""

    body: Body


@dataclass(frozen=True, slots=True)
class HeldQueue:
    """A Queue that could not be deleted without the controller."""

    body: Body


Remnant: TypeAlias = PolicyBinding | TaintRule | HeldClaim | GatedPod | HeldQueue


def bindings(policies: Iterable[Body], of_policies: Iterable[Body]) -> Iterator[PolicyBinding]:
    """The bindings of the policies that change what names a queue."""
    names = {key_of(policy).name for policy in policies if _selects_queues(policy)}
    for binding in of_policies:
        if binding["spec"].get("policyName") in names:
            yield PolicyBinding(binding)


def remnants(
    rules: Iterable[Body], claims: Iterable[Body], pods: Iterable[Body]
) -> Iterator[TaintRule | HeldClaim | GatedPod]:
    """What is left in a cluster, in the order of removal.

    Pods lose their gate when no claim of theirs has devices that nobody can use, and when devices
    can be allocated by everybody.
    """
    for rule in rules:
        if rule["spec"]["taint"]["key"] == TAINT:
            yield TaintRule(rule)
    known = list(pods)
    gated = {pod["metadata"]["uid"]: pod for pod in known if _is_gated(pod)}
    in_effect = {
        claim for pod in known if pod["metadata"]["uid"] not in gated for claim in _claims(pod)
    }
    tentative = {claim for pod in gated.values() for claim in _claims(pod)} - in_effect
    for claim in claims:
        held = _held(claim, gated, is_tentative=str(key_of(claim)) in tentative)
        if held is not None:
            yield held
    for pod in gated.values():
        yield GatedPod(pod)


def held_queues(queues: Iterable[Body]) -> Iterator[HeldQueue]:
    """The Queues that have the finalizer of the controller."""
    for queue in queues:
        if QUEUE_FINALIZER in (queue["metadata"].get("finalizers") or ()):
            yield HeldQueue(queue)


def in_use(driver: str, claims: Iterable[Body], left: Iterable[Remnant]) -> Iterator[Body]:
    """The claims that have devices of a driver, and keep them when what is left is removed.

    Pods use them: without the driver's plugin, these would stay in `Terminating`.
    """
    freed = {
        key_of(remnant.body)
        for remnant in left
        if isinstance(remnant, HeldClaim) and not remnant.users
    }
    for claim in claims:
        allocation = (claim.get("status") or {}).get("allocation") or {}
        results = (allocation.get("devices") or {}).get("results") or ()
        if key_of(claim) not in freed and any(result["driver"] == driver for result in results):
            yield claim


def find_in_use(client: Client, driver: str) -> list[Body]:
    """The claims whose devices are in use. Raises ApiError."""
    left = find_remnants(client)
    return list(in_use(driver, client.list(RESOURCE_CLAIMS).items, left))


def scale_down(client: Client, deployment: ObjectKey) -> None:
    """Ends the controller, if it is there. Raises ApiError."""
    with suppress(NotFound):
        client.patch(
            DEPLOYMENTS,
            deployment.name,
            MergePatch({"spec": {"replicas": 0}}),
            namespace=deployment.namespace,
            subresource="scale",
        )


def find_bindings(client: Client) -> list[PolicyBinding]:
    """The bindings that are in force. Raises ApiError."""
    return list(bindings(_served(client, POLICIES), _served(client, BINDINGS)))


def find_remnants(client: Client) -> list[Remnant]:
    """What else is left. Raises ApiError."""
    # Claims are read before pods: the pods of a claim are then known.
    rules, claims = _served(client, DEVICE_TAINT_RULES), client.list(RESOURCE_CLAIMS).items
    left = remnants(rules, claims, client.list(PODS).items)
    return [*left, *find_held_queues(client)]


def find_held_queues(client: Client) -> list[HeldQueue]:
    """The Queues that are left. Raises ApiError."""
    return list(held_queues(_served(client, QUEUES)))


def remove(client: Client, remnant: Remnant) -> None:
    """Removes what is left, if it has not changed since it was read.

    Raises:
        Conflict: it has changed.
        NotFound: its object is gone.
        ApiError: it cannot be removed.
    """
    key = key_of(remnant.body)
    metadata = {"resourceVersion": resource_version_of(remnant.body)}
    match remnant:
        case PolicyBinding():
            client.delete(BINDINGS, key.name, preconditions=_same(remnant.body))
        case TaintRule():
            client.delete(DEVICE_TAINT_RULES, key.name, preconditions=_same(remnant.body))
        case HeldClaim(users=users):
            status: Body = {"reservedFor": list(users) or None}
            if not users:
                status |= {"allocation": None, "devices": None}
            change = MergePatch({"metadata": metadata, "status": status})
            client.patch(
                RESOURCE_CLAIMS, key.name, change, namespace=key.namespace, subresource="status"
            )
        case GatedPod(body=pod):
            gates = [gate for gate in pod["spec"]["schedulingGates"] if gate["name"] != GATE]
            change = MergePatch({"metadata": metadata, "spec": {"schedulingGates": gates}})
            client.patch(PODS, key.name, change, namespace=key.namespace)
        case HeldQueue(body=queue):
            left = [
                finalizer
                for finalizer in queue["metadata"]["finalizers"]
                if finalizer != QUEUE_FINALIZER
            ]
            client.patch(
                QUEUES, key.name, MergePatch({"metadata": metadata | {"finalizers": left}})
            )
        case _:
            assert_never(remnant)


def describe_use(claim: Body) -> str:
    """Which claim is in use, and by whom, for people."""
    entries = claim["status"].get("reservedFor") or ()
    users = ", ".join(f"{entry['resource']}/{entry['name']}" for entry in entries[:_USERS_SHOWN])
    more = f" and {len(entries) - _USERS_SHOWN} more" if len(entries) > _USERS_SHOWN else ""
    return f"ResourceClaim {key_of(claim)}: in use" + (f" by {users}{more}" if users else "")


def name_of(remnant: Remnant) -> str:
    """The kind and the name of what is left, for people."""
    match remnant:
        case PolicyBinding():
            kind = "MutatingAdmissionPolicyBinding"
        case TaintRule():
            kind = "DeviceTaintRule"
        case HeldClaim():
            kind = "ResourceClaim"
        case GatedPod():
            kind = "Pod"
        case HeldQueue():
            kind = "Queue"
        case _:
            assert_never(remnant)
    return f"{kind} {key_of(remnant.body)}"


def describe(remnant: Remnant) -> str:
    """What is removed, for people."""
    match remnant:
        case PolicyBinding() | TaintRule():
            change = "deleted"
        case HeldClaim(users=()):
            change = "allocation and reservation removed"
        case HeldClaim():
            change = "reservation removed; pods use it"
        case GatedPod():
            change = "gate removed"
        case HeldQueue():
            change = "finalizer removed"
        case _:
            assert_never(remnant)
    return f"{name_of(remnant)}: {change}"


def holder(
    client: Client,
    lease: ObjectKey,
    *,
    clock: Callable[[], float],
    wait: Callable[[float], None],
) -> str | None:
    """Who leads by a Lease; None for nobody. Waits until a Lease that nobody renews has expired.

    Raises ApiError.
    """
    seen: Observation | None = None
    while True:
        try:
            now_seen = observe(
                client.get(LEASES, lease.name, namespace=lease.namespace), seen, clock()
            )
        except NotFound:
            return None
        if seen is not None and now_seen.since != seen.since and now_seen.record.holder:
            return now_seen.record.holder
        if now_seen.free_for("", clock()):
            return None
        seen = now_seen
        wait(_POLL_SECONDS)


def _served(client: Client, resource: ApiResource) -> list[Body]:
    """The objects of a resource that not every cluster serves."""
    try:
        return client.list(resource).items
    except PathNotFound:
        return []


def _selects_queues(policy: Body) -> bool:
    selector = (policy["spec"].get("matchConstraints") or {}).get("objectSelector") or {}
    return any(each["key"] == QUEUE_LABEL for each in selector.get("matchExpressions") or ())


def _is_gated(pod: Body) -> bool:
    return any(gate["name"] == GATE for gate in pod["spec"].get("schedulingGates") or ())


def _claims(pod: Body) -> tuple[str, ...]:
    namespace = key_of(pod).namespace
    return claims_of(namespace, pod["spec"], pod.get("status") or {})[0]


def _held(claim: Body, gated: Mapping[str, Body], *, is_tentative: bool) -> HeldClaim | None:
    """What the controller holds of a claim; None for nothing."""
    status = claim.get("status") or {}
    entries = status.get("reservedFor") or ()
    others = tuple(entry for entry in entries if not _is_own(entry))
    users = tuple(entry for entry in others if entry["uid"] not in gated)
    if not users and (len(others) < len(entries) or (is_tentative and status.get("allocation"))):
        return HeldClaim(claim, ())
    return HeldClaim(claim, others) if len(others) < len(entries) else None


def _is_own(entry: Body) -> bool:
    return (entry.get("apiGroup"), entry["resource"]) == (GROUP, RESERVATIONS)


def _same(body: Body) -> Preconditions:
    return Preconditions(uid=body["metadata"]["uid"])
