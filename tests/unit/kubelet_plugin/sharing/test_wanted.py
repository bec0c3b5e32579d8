"""What carina-sharing is told of recorded claims."""

import string
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from carina_dra.resource import ConsumerReference, ObjectMeta, ResourceClaim, ResourceClaimSpec
from carina_dra.resource.claim import ResourceClaimStatus
from carina_dra.sharing.message import MOST_BYTES, Reference, WantedShares
from kubelet_plugin.claims.claim import NodeClaim
from kubelet_plugin.sharing.wanted import has_shares, pods_of, shares_of
from tests.samples.claims import allocated, allocated_share, claim

GPUS = {"gpu-0": "GPU-0", "gpu-1": "GPU-1"}
POD = Reference(namespace="default", name="train", uid="pod-1")


def test_a_share_has_its_claim_its_amounts_and_its_pods() -> None:
    shared = claim(allocated_share("gpu-0-share", share_id="a", memory="30Gi", cores=40))
    (share,) = shares_of([shared], GPUS, {shared.uid: (POD,)})

    assert share.claim == Reference(namespace="default", name="train", uid=shared.uid)
    assert (share.gpu, share.memory_mib, share.cores) == ("GPU-0", 30720, 40)
    assert share.pods == (POD,)


def test_several_shares_of_a_claim_on_a_gpu_are_added_up() -> None:
    shared = claim(
        allocated_share("gpu-0-share", "a", share_id="a", memory="1Gi", cores=10),
        allocated_share("gpu-0-share", "b", share_id="b", memory="2Gi", cores=20),
        allocated_share("gpu-1-share", "c", share_id="c", memory="4Gi", cores=5),
    )
    found = shares_of([shared], GPUS, {})

    amounts = [(share.gpu, share.memory_mib, share.cores) for share in found]
    assert amounts == [("GPU-0", 3072, 30), ("GPU-1", 4096, 5)]


def test_the_shares_of_a_claim_are_sorted_by_gpu() -> None:
    shared = claim(
        allocated_share("gpu-1-share", "a", share_id="a"),
        allocated_share("gpu-0-share", "b", share_id="b"),
    )
    assert [share.gpu for share in shares_of([shared], GPUS, {})] == ["GPU-0", "GPU-1"]


def test_a_claim_has_no_more_than_all_cores_of_a_gpu() -> None:
    """More than all do not fit into a message."""
    shared = claim(
        allocated_share("gpu-0-share", "a", share_id="a", cores=60),
        allocated_share("gpu-0-share", "b", share_id="b", cores=60),
    )
    assert [share.cores for share in shares_of([shared], GPUS, {})] == [100]


def test_other_devices_and_gpus_that_are_not_there_are_left_out() -> None:
    whole = claim(allocated("gpu-0"), uid="whole")
    gone = claim(allocated_share("gpu-7-share", share_id="a"), uid="gone")
    admin = claim(
        replace(allocated_share("gpu-0-share", share_id="a"), admin_access=True), uid="admin"
    )
    no_amount = claim(allocated("gpu-0-share", share_id="a"), uid="none")

    assert shares_of([whole, gone, admin, no_amount], GPUS, {}) == ()
    assert [has_shares(each) for each in (whole, gone, admin)] == [False, True, False]


def test_only_pods_use_a_gpu() -> None:
    users = (
        ConsumerReference(resource="pods", name="b", uid="2"),
        ConsumerReference(resource="pods", name="a", uid="1"),
        ConsumerReference(api_group="apps", resource="things", name="c", uid="3"),
    )
    reserved = ResourceClaim(
        metadata=ObjectMeta(name="train", namespace="team"),
        spec=ResourceClaimSpec(),
        status=ResourceClaimStatus(reserved_for=users),
    )
    assert [(pod.namespace, pod.name) for pod in pods_of(reserved)] == [
        ("team", "a"),
        ("team", "b"),
    ]


@given(st.permutations(["a", "b", "c"]))
def test_the_order_of_claims_does_not_matter(names: list[str]) -> None:
    claims = {
        name: claim(allocated_share("gpu-0-share", share_id=name), uid=name) for name in names
    }
    found = shares_of(claims.values(), GPUS, {})
    assert [share.claim.uid for share in found] == ["a", "b", "c"]


def test_the_pods_of_the_last_claims_are_left_out_where_there_are_more_than_8000() -> None:
    pods = tuple(POD.model_copy(update={"uid": f"{number}"}) for number in range(7999))
    claims = [claim(allocated_share("gpu-0-share", share_id="a"), uid=uid) for uid in "abc"]
    found = shares_of(claims, GPUS, {"a": pods, "b": (POD, POD), "c": (POD,)})
    assert [len(share.pods) for share in found] == [7999, 1, 0]


def test_the_shares_of_the_largest_node_fit_into_a_message() -> None:
    """16 GPUs, 100 shares on each, names as long as the API allows, and 256 pods on each claim."""

    def long(number: int, length: int) -> str:
        return f"{number}".rjust(length, string.ascii_lowercase[number % 26])

    gpus = {f"gpu-{minor}": long(minor, 40) for minor in range(16)}
    claims = [
        NodeClaim(
            long(number, 36),
            long(number, 63),
            long(number, 253),
            (allocated_share(f"gpu-{number % 16}-share", share_id="a", memory="1Mi", cores=1),),
        )
        for number in range(1600)
    ]
    pods = tuple(
        Reference(namespace=long(number, 63), name=long(number, 253), uid=long(number, 36))
        for number in range(256)
    )
    shares = shares_of(claims, gpus, {claim.uid: pods for claim in claims})

    assert len(shares) == 1600
    assert len(WantedShares(generation=2**62, shares=shares).line()) <= MOST_BYTES
