"""What queues have of GPUs agrees with a count from slices and claims, and stays in limits."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from math import ceil
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from carina_dra.placement.cluster.gpu import GPU
from carina_dra.quantity import Quantity
from carina_dra.resource import (
    Allocation,
    CapacityRequirements,
    CelSelector,
    DeviceAllocation,
    DeviceClaim,
    DeviceRequest,
    DeviceResult,
    DeviceSelector,
    ExactDeviceRequest,
    Exactly,
    ObjectMeta,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimStatus,
    ResourceSlice,
)
from controller.engine.decide.cycle import plan
from controller.engine.model.group import Group, PodSet
from controller.engine.model.pod import Pending, Placed, Pod, PodNeeds
from controller.engine.model.queue import Entitlement, Queue
from controller.engine.model.resource import CapacityOf, DevicesOf, Gpus, Resource
from controller.engine.model.snapshot import Snapshot
from controller.engine.simulate.fleet import DRIVER, GpuUse, NodeTemplate, device_classes
from controller.engine.state.state import State
from tests.unit.controller.engine.properties.examples import examples
from tests.unit.controller.engine.properties.following import follow, observe

_GIB = 2**30
_MODEL = "NVIDIA H100 80GB HBM3"
_TEMPLATE = NodeTemplate(
    "n", cpu=96_000, memory=2**40, gpus=3, devices=tuple(GpuUse), product=_MODEL
)
_SLICES = _TEMPLATE.slices("n")
_NAMES = tuple(device.name for one in _SLICES for device in one.spec.devices)
_LEAST = Fraction(1, 10)


def _part(result: DeviceResult, slices: Iterable[ResourceSlice]) -> tuple[str, Fraction]:
    """The GPU, and how much of it: written for this test, from what is published."""
    devices = {device.name: device for one in slices for device in one.spec.devices}
    device = devices[result.device]
    gpu = "-".join(device.name.split("-")[:2])
    if result.consumed_capacity:
        parts = [
            Fraction(amount.value(), device.capacity[name].value.value())
            for name, amount in result.consumed_capacity.items()
        ]
        return gpu, max(_LEAST, *parts)
    if "-mig-" not in device.name:
        return gpu, Fraction(1)
    compute = Fraction(int(device.name.split("-")[3].partition("g")[0]), 7)
    memory = Fraction(device.capacity["memory"].value.value(), 80 * _GIB)
    return gpu, max(_LEAST, compute, memory)


def _count(claims: Iterable[ResourceClaim]) -> Fraction:
    parts: dict[str, Fraction] = {}
    for claim in claims:
        allocation = claim.status.allocation
        for result in allocation.devices.results if allocation else ():
            gpu, part = _part(result, _SLICES)
            parts[gpu] = min(Fraction(1), parts.get(gpu, Fraction(0)) + part)
    return sum(parts.values(), Fraction(0))


_CONSUMED = st.fixed_dictionaries(
    {
        "memory": st.integers(1, 80 * 1024).map(lambda mib: Quantity.of(mib * 2**20)),
        "cores": st.integers(1, 100).map(Quantity.of),
    }
)


@st.composite
def _results(draw: st.DrawFn) -> DeviceResult:
    name = draw(st.sampled_from(_NAMES))
    if not name.endswith("-share"):
        return DeviceResult("r", DRIVER, "n", name)
    share = str(draw(st.integers(0, 10**9)))
    return DeviceResult("r", DRIVER, "n", name, share_id=share, consumed_capacity=draw(_CONSUMED))


def _claim(name: str, *results: DeviceResult) -> ResourceClaim:
    request = DeviceRequest("r", Exactly(ExactDeviceRequest("gpu.carina.dev")))
    return ResourceClaim(
        ObjectMeta(name=name, namespace="t", uid=name),
        spec=ResourceClaimSpec(DeviceClaim((request,))),
        status=ResourceClaimStatus(Allocation(DeviceAllocation(results)) if results else None),
    )


def _snapshot(queues: Mapping[str, Entitlement], owners: Mapping[str, str]) -> Snapshot:
    """Leaf queues below `top`; a group, a pod and a claim of each name."""
    resource = Gpus()
    return Snapshot(
        now=1000,
        nodes=tuple(_TEMPLATE.nodes()),
        slices=_SLICES,
        classes=device_classes(),
        queues=(
            Queue("top", entitlements={resource: Entitlement(quota=3 * GPU)}),
            *(Queue(name, "top", entitlements={resource: of}) for name, of in queues.items()),
        ),
        groups=tuple(Group(f"t/{name}", queue, PodSet("", 1)) for name, queue in owners.items()),
    )


@given(st.lists(st.tuples(st.sampled_from("ab"), _results(), st.booleans()), max_size=12))
@settings(max_examples=200, deadline=None)
def test_accounts_agree_with_a_count_from_allocations(
    held: list[tuple[str, DeviceResult, bool]],
) -> None:
    """The devices need not fit together: each GPU counts once for a queue all the same."""
    owners = {f"c{index}": queue for index, (queue, _, _) in enumerate(held)}
    claims = {f"c{index}": _claim(f"c{index}", one) for index, (_, one, _) in enumerate(held)}
    snapshot = replace(
        _snapshot({"a": Entitlement(), "b": Entitlement()}, owners),
        claims=tuple(claims.values()),
        pods=tuple(
            Pod(f"t/{name}", PodNeeds(), Placed("n"), f"t/{name}", claims=(f"t/{name}",))
            for name in claims
        ),
    )
    state = State(snapshot)

    def has(queue: str) -> Fraction:
        return Fraction(state.occupancy.accounts.allocated[queue][0], GPU)

    def counted(names: Iterable[str]) -> Fraction:
        return _count(claims[name] for name in names)

    def check(stays: Iterable[str]) -> None:
        names = list(stays)
        for queue in "ab":
            assert abs(has(queue) - counted(n for n in names if owners[n] == queue)) < _ROUNDED
        assert abs(has("top") - counted(names)) < _ROUNDED

    check(claims)
    before, mark = dict(state.occupancy.accounts.allocated), state.occupancy.mark()
    for index, (_, _, leaves) in enumerate(held):
        if leaves:
            state.occupancy.evict(f"t/c{index}", here=True)
    check(f"c{index}" for index, (_, _, leaves) in enumerate(held) if not leaves)
    state.occupancy.rollback(mark)
    assert state.occupancy.accounts.allocated == before


_DEVICES = _SLICES[-1]
_WITHOUT_MEMORY = replace(
    _DEVICES,
    spec=replace(
        _DEVICES.spec, devices=tuple(replace(one, capacity={}) for one in _DEVICES.spec.devices)
    ),
)
_THIRDS = replace(_TEMPLATE, least_share=Fraction(1, 3)).slices("n")[-1]
"""The same devices, of which each part counts a third at least."""
_RESOURCES = (
    Gpus(),
    Gpus(_MODEL),
    CapacityOf(f"{DRIVER}/memory"),
    *(DevicesOf(one.metadata.name) for one in device_classes()),
)


@st.composite
def _versions(draw: st.DrawFn, snapshot: Snapshot) -> Snapshot:
    """Other objects about devices, of which some may be missing, and queues' other resources."""
    kept = draw(st.lists(st.sampled_from(snapshot.slices), unique_by=id))
    other = draw(st.sampled_from([_DEVICES, _WITHOUT_MEMORY, _THIRDS]))
    slices = [other if one is _DEVICES else one for one in kept]
    classes = draw(st.lists(st.sampled_from(snapshot.classes), unique_by=id))
    return replace(snapshot, slices=tuple(slices), classes=tuple(classes))


@given(
    st.data(),
    st.lists(st.tuples(st.sampled_from("ab"), _results(), st.booleans()), max_size=8),
    st.sets(st.sampled_from(_RESOURCES), min_size=1),
    st.randoms(use_true_random=False),
)
@examples(100)
def test_accounts_do_not_depend_on_when_devices_and_classes_were_seen(
    data: st.DataObject,
    held: list[tuple[str, DeviceResult, bool]],
    resources: set[Resource],
    rng: Random,
) -> None:
    owners = {f"c{index}": queue for index, (queue, _, _) in enumerate(held)}
    claims = [
        _claim(f"c{index}", one) if runs else _asking(f"c{index}", ("gpu.carina.dev", "", 0, 0))
        for index, (_, one, runs) in enumerate(held)
    ]
    present = _snapshot({"a": Entitlement(), "b": Entitlement()}, owners)
    named = dict.fromkeys(sorted(resources, key=str), Entitlement())
    present = replace(
        present,
        queues=tuple(replace(queue, entitlements=named) for queue in present.queues),
        claims=tuple(claims),
        pods=tuple(
            Pod(f"t/c{index}", PodNeeds(), state, f"t/c{index}", claims=(f"t/c{index}",))
            for index, (_, _, runs) in enumerate(held)
            for state in (Placed("n") if runs else Pending(),)
        ),
    )
    before = Snapshot(now=1000)
    state = State(before)
    for after in (present, data.draw(_versions(present)), data.draw(_versions(present))):
        follow(state, before, after, rng)
        state.refresh()
        fresh = State(after)
        fresh.refresh()
        seen, expected = observe(state), observe(fresh)
        for what in ("charges", "claim requests", "allocated", "firm", "requested", "uncounted"):
            assert seen[what] == expected[what]
        before = after


_ROUNDED = Fraction(1, 10**12)
"""Parts that are no whole number of units are rounded up."""

_WANTED = st.sampled_from(
    [
        ("gpu.carina.dev", "", 0, 0),
        *(("mig.gpu.carina.dev", f"{slices}g", 0, 0) for slices in (1, 2, 3, 7)),
        *(
            ("share.gpu.carina.dev", "", gib, cores)
            for gib in (1, 20, 40, 80)
            for cores in (1, 25, 50, 100)
        ),
    ]
)


def _asking(name: str, wanted: tuple[str, str, int, int]) -> ResourceClaim:
    device_class, profile, gib, cores = wanted
    selector = f"device.attributes['{DRIVER}'].profile.startsWith('{profile}')"
    exact = ExactDeviceRequest(
        device_class,
        selectors=(DeviceSelector(CelSelector(selector)),) if profile else (),
        capacity=CapacityRequirements(
            {"memory": Quantity.of(gib * _GIB), "cores": Quantity.of(cores)}
        )
        if gib
        else None,
    )
    spec = ResourceClaimSpec(DeviceClaim((DeviceRequest("r", Exactly(exact)),)))
    return ResourceClaim(ObjectMeta(name=name, namespace="t", uid=name), spec=spec)


@given(
    st.lists(st.tuples(st.sampled_from("ab"), _WANTED), min_size=1, max_size=8),
    st.integers(0, 12),
)
@settings(max_examples=80, deadline=None)
def test_what_starts_stays_within_limits_by_that_count(
    asked: list[tuple[str, tuple[str, str, int, int]]], quarters: int
) -> None:
    limit = quarters * GPU // 4
    owners = {f"c{index}": queue for index, (queue, _) in enumerate(asked)}
    claims = {f"c{index}": _asking(f"c{index}", one) for index, (_, one) in enumerate(asked)}
    entitled = Entitlement(quota=0, limit=limit)
    snapshot = replace(
        _snapshot({"a": entitled, "b": Entitlement()}, owners),
        claims=tuple(claims.values()),
        pods=tuple(
            Pod(f"t/{name}", PodNeeds(), Pending(), f"t/{name}", claims=(f"t/{name}",))
            for name in claims
        ),
    )
    allocated = [
        replace(claims[key.removeprefix("t/")], status=ResourceClaimStatus(allocation))
        for start in plan(snapshot).starts
        for key, allocation in start.allocations
        if owners[key.removeprefix("t/")] == "a"
    ]
    assert _count(allocated) <= Fraction(limit, GPU)


def _touched(claims: Iterable[ResourceClaim]) -> int:
    """The number of GPUs of which claims have a part."""
    return len(
        {
            _part(result, _SLICES)[0]
            for claim in claims
            if (allocation := claim.status.allocation) is not None
            for result in allocation.devices.results
        }
    )


@given(st.lists(_WANTED, min_size=1, max_size=8), st.integers(0, 12))
@settings(max_examples=80, deadline=None)
def test_what_is_not_preemptible_keeps_parts_of_no_more_gpus_than_the_quota(
    asked: list[tuple[str, str, int, int]], quarters: int
) -> None:
    quota = Fraction(quarters, 4)
    claims = {f"c{index}": _asking(f"c{index}", one) for index, one in enumerate(asked)}
    entitled = Entitlement(quota=int(quota * GPU))
    snapshot = _snapshot({"a": entitled}, dict.fromkeys(claims, "a"))
    snapshot = replace(
        snapshot,
        groups=tuple(replace(group, preemptible=False) for group in snapshot.groups),
        claims=tuple(claims.values()),
        pods=tuple(
            Pod(f"t/{name}", PodNeeds(), Pending(), f"t/{name}", claims=(f"t/{name}",))
            for name in claims
        ),
    )
    allocated = [
        replace(claims[key.removeprefix("t/")], status=ResourceClaimStatus(allocation))
        for start in plan(snapshot).starts
        for key, allocation in start.allocations
    ]
    assert _count(allocated) <= quota
    assert _touched(allocated) <= ceil(quota)


@given(st.lists(st.lists(st.integers(1, 10), max_size=3), min_size=3, max_size=3))
@settings(max_examples=80, deadline=None)
def test_a_quota_of_whole_gpus_is_given_back_however_its_gpus_are_shared(
    tenths: list[list[int]],
) -> None:
    """Queue b is within its quota of one GPU, or borrows, and has shares of up to three."""
    shares = {
        f"c{gpu}-{index}": (gpu, tenth)
        for gpu, parts in enumerate(tenths)
        for index, tenth in enumerate(parts)
        if sum(parts[: index + 1]) <= 10
    }
    held = {
        name: _claim(name, _share_of(gpu, tenth, name)) for name, (gpu, tenth) in shares.items()
    }
    asked = {name: _asking(name, ("gpu.carina.dev", "", 0, 0)) for name in ("w0", "w1")}
    owners = dict.fromkeys(held, "b") | dict.fromkeys(asked, "a")
    snapshot = replace(
        _snapshot({"a": Entitlement(quota=2 * GPU), "b": Entitlement(quota=GPU)}, owners),
        claims=(*held.values(), *asked.values()),
        pods=tuple(
            Pod(f"t/{name}", PodNeeds(), state, f"t/{name}", claims=(f"t/{name}",))
            for names, state in ((held, Placed("n")), (asked, Pending()))
            for name in names
        ),
    )
    decided = plan(snapshot)
    got = {one.pod for one in decided.starts} | {one.pod for one in decided.nominations}
    assert got >= {"t/w0", "t/w1"}
    gone = {eviction.pod.removeprefix("t/") for eviction in decided.evictions}
    kept = [claim for name, claim in held.items() if name not in gone]
    assert _touched(kept) == min(1, _touched(held.values()))


def _share_of(gpu: int, tenth: int, name: str) -> DeviceResult:
    amounts = {
        "memory": Quantity.of(tenth * 8 * _GIB),
        "cores": Quantity.of(tenth * 10),
    }
    device = f"gpu-{gpu}-share"
    return DeviceResult("r", DRIVER, "n", device, share_id=name, consumed_capacity=amounts)
