"""Devices that fit alone but not together: refused where counters say so, never otherwise."""

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carina_dra.allocator.allocate import Allocated, Answer, allocate
from carina_dra.allocator.preference import Policy
from carina_dra.allocator.search import Impossible
from carina_dra.placement.bounds.demand import Bound, Demand, Short
from carina_dra.placement.cluster.cluster import Cluster
from carina_dra.resource import ResourceClaim
from tests.benchmarks.carina import Carina
from tests.benchmarks.fleet import Fleet, pages
from tests.benchmarks.fleets import mig, published
from tests.samples.fleet import DRIVER, claim, claim_of, cluster, consumption, give, request, slices

_PARENT = f"{DRIVER}/parent"
_NODE = "a"


def _bound(of: Cluster, asked: ResourceClaim, node: str = _NODE) -> Bound | Short:
    states = [of.pool_state(pool) for pool in of.offer(node).ready]
    demand = Demand(request(asked).claims, of.features)
    return demand.bound(of.offer(node), states, is_whole=True, wish=True)


def _searched(of: Cluster, asked: ResourceClaim, node: str = _NODE) -> Answer:
    """What a search finds without any bounds."""
    return allocate(
        request(asked).claims, of.state(node), new_share_id=lambda: "share", policy=Policy()
    )


# Random nodes.

_COUNTERS = ("slot-0", "slot-1", "slot-2", "memory")


def _random_node(random: Random) -> Cluster:
    """Two groups of partitions, some of them shareable, and devices without counters.

    There may be another pool, before or after that of the partitions.
    """
    sets = [
        {"name": name, "counters": {counter: {"value": "2"} for counter in _COUNTERS}}
        for name in ("x", "y")
    ]
    devices = [
        _random_device(random, f"{name}{index}", name) for name in "xy" for index in range(4)
    ]
    devices.append({"name": "z", "attributes": _attributes(random, "z")})
    made = cluster(a=[])
    made.remove_slice("a-0")
    for spec in slices(_NODE, {"sharedCounters": sets}, {"devices": devices}):
        made.put_slice(spec)
    if random.random() < 0.5:
        more = [_random_plain(random, f"n{index}") for index in range(random.randint(1, 3))]
        for spec in slices(random.choice(["0", "b"]), {"nodeName": _NODE, "devices": more}):
            made.put_slice(spec)
    for _ in range(random.randint(0, 2)):
        give(made, _random_claim(random))
    return made


def _random_device(random: Random, name: str, counter_set: str) -> dict[str, Any]:
    counters = {
        counter: {"value": str(random.randint(0, 2))}
        for counter in random.sample(_COUNTERS, random.randint(1, 3))
    }
    shares = _shares(random) if random.random() < 0.2 else {}
    return {
        "name": name,
        "attributes": _attributes(random, counter_set),
        "consumesCounters": [{"counterSet": counter_set, "counters": counters}],
        **shares,
    }


def _random_plain(random: Random, name: str) -> dict[str, Any]:
    shares = _shares(random) if random.random() < 0.5 else {}
    return {"name": name, "attributes": _attributes(random, random.choice("xy")), **shares}


def _shares(random: Random) -> dict[str, Any]:
    policy = {"default": "1", "validRange": {"min": "1", "step": "1"}}
    capacity = {"shares": {"value": str(random.randint(1, 4)), "requestPolicy": policy}}
    return {"allowMultipleAllocations": True, "capacity": capacity}


def _attributes(random: Random, parent: str) -> dict[str, Any]:
    attributes = {"parent": {"string": parent}, "kind": {"int": random.randint(0, 1)}}
    if random.random() < 0.5:
        attributes["resource.kubernetes.io/numaNode"] = {"int": random.randint(0, 1)}
    return attributes


def _random_claim(random: Random) -> ResourceClaim:
    requests = [_random_request(random, f"r{index}") for index in range(random.randint(1, 3))]
    constraints = [{"matchAttribute": _PARENT}] if random.random() < 0.6 else []
    return claim_of(*requests, constraints=constraints)


def _random_request(random: Random, name: str) -> dict[str, Any]:
    if random.random() < 0.2:
        alternatives = [{"name": f"x{i}", **_random_exact(random)} for i in range(2)]
        return {"name": name, "firstAvailable": alternatives}
    exactly = _random_exact(random)
    if random.random() < 0.1:
        exactly["adminAccess"] = True
    return {"name": name, "exactly": exactly}


def _random_exact(random: Random) -> dict[str, Any]:
    exactly: dict[str, Any] = {"deviceClassName": "gpu", "count": random.randint(1, 3)}
    if random.random() < 0.4:
        kind = f'device.attributes["{DRIVER}"].kind == {random.randint(0, 1)}'
        exactly["selectors"] = [{"cel": {"expression": kind}}]
    if random.random() < 0.2:
        exactly["capacity"] = {"requests": {"shares": str(random.randint(1, 3))}}
    return exactly


def _random_questions(seed: int) -> Iterator[tuple[Cluster, ResourceClaim]]:
    random = Random(seed)
    node = _random_node(random)
    for _ in range(4):
        yield node, _random_claim(random)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 10**9))
def test_devices_that_a_search_finds_are_never_refused(seed: int) -> None:
    for node, asked in _random_questions(seed):
        answer = _searched(node, asked)
        if isinstance(answer, Allocated):
            found, score = _bound(node, asked), answer.score
            assert isinstance(found, Bound)
            assert (found.alternatives, found.distance) <= (score.alternatives, score.distance)


def test_most_of_what_is_impossible_is_refused_without_a_search() -> None:
    kinds: Counter[str] = Counter()
    for seed in range(100):
        for node, asked in _random_questions(seed):
            answer = _searched(node, asked)
            if isinstance(answer, Allocated):
                kinds["possible"] += 1
            else:
                kinds["refused" if isinstance(_bound(node, asked), Short) else "searched"] += 1
    assert kinds["possible"] > 50
    assert kinds["refused"] > 5 * kinds["searched"] > 0


# Partitions that are shared.


def _kinds(*kinds: int) -> str:
    return " || ".join(f'device.attributes["{DRIVER}"].kind == {kind}' for kind in kinds)


def _partition(name: str, kind: int, memory: int, *, shared: bool) -> dict[str, Any]:
    return {
        "name": name,
        "attributes": {"kind": {"int": kind}},
        **consumption(gpu=memory),
        **({"allowMultipleAllocations": True} if shared else {}),
    }


def _partitioned(memory: int, *devices: dict[str, Any]) -> Cluster:
    made = cluster(a=[])
    made.remove_slice("a-0")
    counters = [{"name": "gpu", "counters": {"memory": {"value": str(memory)}}}]
    for spec in slices(_NODE, {"sharedCounters": counters}, {"devices": list(devices)}):
        made.put_slice(spec)
    return made


@pytest.mark.parametrize("shared", [True, False])
def test_first_share_of_a_partition_draws_for_all(shared: bool) -> None:
    """Two requests can have the first partition, or each one of its own, which is too much."""
    node = _partitioned(
        3,
        _partition("either", 0, 2, shared=shared),
        _partition("one", 1, 2, shared=False),
        _partition("two", 2, 2, shared=False),
    )
    asked = claim_of(
        *(
            {
                "name": f"r{kind}",
                "exactly": {
                    "deviceClassName": "gpu",
                    "selectors": [{"cel": {"expression": _kinds(0, kind)}}],
                },
            }
            for kind in (1, 2)
        )
    )
    assert isinstance(_bound(node, asked), Bound if shared else Short)
    assert isinstance(_searched(node, asked), Allocated if shared else Impossible)


@pytest.mark.parametrize("pool", ["0", "b"], ids=["before", "after"])
def test_device_of_another_pool_may_serve_several_requests(pool: str) -> None:
    """Of the partitions, one is wanted; the counters leave no room for another."""
    of_one = [
        {"name": f"p{index}", "attributes": {"kind": {"int": 1}}, **consumption(gpu=1)}
        for index in range(2)
    ]
    nodes = _partitioned(1, *of_one)
    shared = {
        "name": "shared",
        "attributes": {"kind": {"int": 0}},
        "allowMultipleAllocations": True,
        "capacity": {"shares": {"value": "2", "requestPolicy": {"default": "1"}}},
    }
    for spec in slices(pool, {"nodeName": _NODE, "devices": [shared]}):
        nodes.put_slice(spec)
    anything = [
        {"name": name, "exactly": {"deviceClassName": "gpu"}} for name in ("first", "second")
    ]
    selector = {"cel": {"expression": f'device.attributes["{DRIVER}"].kind == 1'}}
    partition = {"deviceClassName": "gpu", "selectors": [selector]}
    asked = claim_of(*anything, {"name": "partition", "exactly": partition})
    assert isinstance(_searched(nodes, asked), Allocated)
    assert isinstance(_bound(nodes, asked), Bound)


def test_partition_with_shares_draws_no_more() -> None:
    node = _partitioned(
        3,
        _partition("shared", 0, 2, shared=True),
        *(_partition(f"p{index}", 1, 1, shared=False) for index in range(2)),
    )
    assert give(node, claim(selector=_kinds(0))) == ["a/shared"]
    two, three = claim(2), claim(3)
    assert isinstance(_bound(node, two), Bound)
    assert isinstance(_searched(node, two), Allocated)
    assert isinstance(_bound(node, three), Short)


def _shares_of(*amounts: int) -> ResourceClaim:
    of_amounts = (
        {
            "name": f"r{index}",
            "exactly": {
                "deviceClassName": "gpu",
                "capacity": {"requests": {"memory": str(amount)}},
            },
        }
        for index, amount in enumerate(amounts)
    )
    return claim_of(*of_amounts)


@pytest.mark.parametrize("small", [20, 21])
def test_amounts_of_the_requests_say_how_many_shares_fit_on_a_device(small: int) -> None:
    """With 21, neither device has room for the small share beside a large one."""
    shared = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "80"}}}
    node = cluster(a=[{"name": name, **shared} for name in ("one", "two")])
    asked = _shares_of(60, 60, small)
    assert isinstance(_bound(node, asked), Bound if small == 20 else Short)
    assert isinstance(_searched(node, asked), Allocated if small == 20 else Impossible)


# Partitions of GPUs.


@pytest.fixture(scope="module", params=[mig.make, published.partitioned], ids=["slots", "engines"])
def gpus(request: pytest.FixtureRequest) -> Cluster:
    """A node of eight H100 with their MIG placements, as slots alone, or with all engines."""
    fleet: Fleet = request.param(1)
    loaded = Carina()
    for page in pages(Fleet(fleet.nodes, fleet.slices, lambda: ())):
        loaded.add(page)
    return loaded.cluster


def _partitions(of: Cluster, *profiles: str, count: int = 1) -> ResourceClaim:
    """Partitions, those of one request each on one GPU."""
    pool = of.offer(_of(of)).ready[0]
    uuid = "parentUUID" if pool.places(f"{DRIVER}/parentUUID").is_known else "uuid"
    requests = []
    for index, profile in enumerate(profiles):
        attributes = f'device.attributes["{DRIVER}"]'
        expression = f'{attributes}.type == "mig" && {attributes}.profile == "{profile}"'
        exactly = {
            "deviceClassName": "gpu",
            "count": count,
            "selectors": [{"cel": {"expression": expression}}],
        }
        requests.append({"name": f"r{index}", "exactly": exactly})
    constraints = [{"matchAttribute": f"{DRIVER}/{uuid}"}] if len(profiles) > 1 else []
    return claim_of(*requests, constraints=constraints)


def _of(of: Cluster) -> str:
    (name,) = of.nodes
    return name


@pytest.mark.parametrize(
    "profiles",
    [
        ("3g.40gb", "3g.40gb", "1g.10gb"),
        ("4g.40gb", "4g.40gb"),
        ("4g.40gb", "3g.40gb", "1g.10gb"),
        ("7g.80gb", "1g.10gb"),
        ("2g.20gb",) * 4,
        ("1g.10gb",) * 8,
    ],
    ids="+".join,
)
def test_partitions_that_do_not_fit_on_a_gpu_are_refused(
    gpus: Cluster, profiles: tuple[str, ...]
) -> None:
    asked = _partitions(gpus, *profiles)
    assert isinstance(_bound(gpus, asked, _of(gpus)), Short)


@pytest.mark.parametrize(
    "profiles",
    [
        ("3g.40gb", "3g.40gb"),
        ("4g.40gb", "3g.40gb"),
        ("3g.40gb", "1g.10gb", "1g.10gb", "1g.10gb"),
        ("2g.20gb",) * 3,
        ("1g.10gb",) * 7,
    ],
    ids="+".join,
)
def test_partitions_that_fit_on_a_gpu_are_not_refused(
    gpus: Cluster, profiles: tuple[str, ...]
) -> None:
    asked = _partitions(gpus, *profiles)
    assert isinstance(_bound(gpus, asked, _of(gpus)), Bound)
    assert isinstance(_searched(gpus, asked, _of(gpus)), Allocated)


def test_more_partitions_than_all_gpus_have_room_for_are_refused(gpus: Cluster) -> None:
    """A search would try every combination of placements on every GPU."""
    fitting, one_more = (_partitions(gpus, "3g.40gb", count=count) for count in (16, 17))
    assert isinstance(_bound(gpus, fitting, _of(gpus)), Bound)
    assert isinstance(_bound(gpus, one_more, _of(gpus)), Short)


def test_places_of_partitions_are_left_to_the_search() -> None:
    """The slots suffice, but the second slots that a 2g.20gb can have are those of the 4g.40gb."""
    loaded = Carina()
    fleet = mig.make(1)
    for page in pages(Fleet(fleet.nodes, fleet.slices, lambda: ())):
        loaded.add(page)
    asked = _partitions(loaded.cluster, "4g.40gb", "2g.20gb", "2g.20gb")
    assert isinstance(_bound(loaded.cluster, asked, _of(loaded.cluster)), Bound)
    assert isinstance(_searched(loaded.cluster, asked, _of(loaded.cluster)), Impossible)
