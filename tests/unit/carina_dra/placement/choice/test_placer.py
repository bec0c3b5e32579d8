"""The placer finds the best nodes in order, and says what it does not know."""

import itertools
from collections.abc import Callable, Collection

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from carina_dra.allocator.allocate import Allocated, allocate
from carina_dra.allocator.errors import AllocationError
from carina_dra.allocator.group import NUMA_NODE, NVLINK_DOMAIN
from carina_dra.allocator.node import Node
from carina_dra.allocator.preference import CLOSENESS, Policy, Score
from carina_dra.placement.choice.placer import PlacedClaims, PlacementRequest, Unplaceable
from carina_dra.placement.cluster.cluster import Cluster
from carina_dra.resource import ResourceClaim
from tests.samples.fleet import (
    DRIVER,
    claim,
    claim_of,
    cluster,
    devices_of,
    give,
    gpu,
    model_is,
    network,
    partitions,
    place,
    placer_of,
    request,
    slices,
)
from tests.samples.followed_cluster import FollowedCluster

_SEEDS = st.integers(0, 10**9)
_POLICIES = st.sampled_from(["binpack", "spread", "fragmentation", "spread/binpack"])
_NOTHING = Unplaceable(undecided=0, failed=())


def fleet(**nodes: int) -> Cluster:
    """A cluster whose nodes have two free GPUs, and others in use."""
    made = cluster(
        **{
            name: [gpu(f"g{index}", numa=index % 2) for index in range(2 + used)]
            for name, used in nodes.items()
        }
    )
    for name, used in nodes.items():
        for number in range(used):
            placed = placer_of(made).place(request(claim()), [name])
            assert isinstance(placed, PlacedClaims)
            made.allocate(f"{name}/{number}", placed.allocated.allocations[0])
    return made


def question(seed: int) -> tuple[Cluster, PlacementRequest]:
    """A random cluster, and claims for it."""
    followed = FollowedCluster(seed)
    for _ in range(4):
        followed.objects.change()
    followed.follow()
    asked = followed.request()
    assume(asked is not None)
    assert asked is not None
    return followed.cluster, asked[1]


def one_by_one(
    of: Cluster, asked: PlacementRequest, policy: str, nodes: Collection[str]
) -> dict[str, Score]:
    """The scores of the suitable nodes, each found from its state alone."""
    scores = {}
    for name in nodes:
        try:
            answer = allocate(
                asked.claims,
                of.state(name),
                new_share_id=lambda: "share",
                policy=Policy.parse(policy),
            )
        except AllocationError:
            continue
        if isinstance(answer, Allocated):
            scores[name] = answer.score
    return scores


# Nodes in order.


def test_claims_of_a_pod_go_to_one_node_together() -> None:
    nodes = cluster(a=[gpu("g0")], b=[gpu("g0"), gpu("g1")])
    placed = placer_of(nodes).place(request(claim(), claim()))
    assert devices_of(placed) == ["b/g0", "b/g1"]


def test_nodes_come_by_use_and_then_by_name() -> None:
    nodes = fleet(a=0, b=2, c=1, d=2, e=0)
    packed = [placed.node for placed in placer_of(nodes).best(request(claim()))]
    assert packed == ["b", "d", "c", "a", "e"]
    spread = [placed.node for placed in placer_of(nodes, "spread").best(request(claim()))]
    assert spread == ["a", "e", "c", "b", "d"]


def test_only_the_nodes_asked_for_are_chosen() -> None:
    placer = placer_of(fleet(a=0, b=2, c=1, d=2, e=0))
    for nodes, expected in (["a", "c"], ["c", "a"]), (["e", "d", "a", "c"], ["d", "c", "a", "e"]):
        assert [placed.node for placed in placer.best(request(claim()), nodes)] == expected
    assert placer.place(request(claim()), []) == _NOTHING
    assert placer.place(request(claim()), ["unknown"]) == _NOTHING


def test_earlier_alternatives_count_more_than_use_and_closeness() -> None:
    nodes = cluster(
        a=[gpu("g0", numa=0), gpu("g1", numa=1), gpu("g2", model="A100", numa=0)],
        b=[gpu(f"g{index}", model="A100", numa=0) for index in range(4)],
    )
    give(nodes, claim(selector=model_is("A100"), count=2))
    alternatives = [
        {
            "name": model.lower(),
            "deviceClassName": "gpu",
            "count": 2,
            "selectors": [{"cel": {"expression": model_is(model)}}],
        }
        for model in ("H200", "A100")
    ]
    asked = request(claim_of({"name": "gpus", "firstAvailable": alternatives}))
    found = list(placer_of(nodes).best(asked))
    assert [placed.node for placed in found] == ["a", "b"]
    assert [placed.allocated.score.alternatives for placed in found] == [0, 1]


@settings(max_examples=150, deadline=None)
@given(_SEEDS, _POLICIES, st.data())
def test_nodes_come_in_the_order_of_their_scores(
    seed: int, policy: str, data: st.DataObject
) -> None:
    nodes, asked = question(seed)
    names = sorted(nodes.nodes)
    some = data.draw(st.none() | st.sets(st.sampled_from([*names, "unknown"])))
    known = names if some is None else [name for name in names if name in some]
    scores = one_by_one(nodes, asked, policy, known)
    expected = sorted(scores, key=lambda name: (scores[name], name))
    placer = placer_of(nodes, policy)
    placed = list(placer.best(asked, None if some is None else known))
    assert [one.node for one in placed] == expected
    assert [one.allocated.score for one in placed] == [scores[name] for name in expected]
    first = placer.place(asked, None if some is None else known)
    assert first == (placed[0] if placed else first)
    assert isinstance(first, PlacedClaims) == bool(expected)


def test_iterator_that_is_abandoned_changes_no_answer() -> None:
    placer = placer_of(fleet(a=0, b=2, c=1, d=2, e=0))
    for taken in (0, 1, 3, 5):
        list(itertools.islice(placer.best(request(claim())), taken))
        assert [one.node for one in placer.best(request(claim()))] == ["b", "d", "c", "a", "e"]


def test_questions_while_an_iterator_waits_are_answered_right() -> None:
    nodes = fleet(a=0, b=2, c=1, d=2, e=0)
    placer = placer_of(nodes)
    waiting = placer.best(request(claim()))
    begun = [next(waiting).node, next(waiting).node]
    assert placer.place(request(claim())) == next(placer_of(nodes).best(request(claim())))
    assert [one.node for one in placer.best(request(claim()))] == ["b", "d", "c", "a", "e"]
    assert [*begun, *(one.node for one in waiting)] == ["b", "d", "c", "a", "e"]


_SOME = pytest.mark.parametrize(
    "some", [None, ["c", "b"]], ids=["of all nodes", "of a few of them"]
)


@_SOME
def test_iterator_goes_on_after_each_of_its_nodes_was_taken_and_given_back(
    some: list[str] | None,
) -> None:
    nodes = fleet(a=0, b=2, c=1, d=2, e=0)
    placer, asked = placer_of(nodes), request(claim())
    visited = []
    for placed in placer.best(asked, some):
        visited.append(placed.node)
        nodes.allocate("default/taken-back", placed.allocated.allocations[0])
        assert placer.place(asked, some) == placer_of(nodes).place(asked, some)
        nodes.release("default/taken-back")
    assert visited == (["b", "c"] if some else ["b", "d", "c", "a", "e"])


@_SOME
@pytest.mark.parametrize("is_filled", [True, False], ids=["filled", "emptied"])
def test_iterator_goes_on_as_before_after_the_nodes_to_come_had_changed(
    some: list[str] | None, is_filled: bool
) -> None:
    nodes = fleet(a=0, b=2, c=1, d=0, e=0)
    placer, asked = placer_of(nodes), request(claim())
    waiting = placer.best(asked, some)
    visited = [next(waiting)]
    if is_filled:
        users = [claim() for _ in range(10)]
        assert all(give(nodes, user) for user in users)
        assert not give(nodes, claim())
        assert list(placer.best(asked, some)) == []
        for user in users:
            nodes.release(user.key)
    else:
        held = {key: nodes.allocation(key) for key in ("b/0", "b/1", "c/0")}
        for key in held:
            nodes.release(key)
        assert list(placer.best(asked, some)) == list(placer_of(nodes).best(asked, some))
        for key, allocation in held.items():
            assert allocation is not None
            nodes.allocate(key, allocation)
    assert [*visited, *waiting] == list(placer_of(nodes).best(asked, some))


@settings(max_examples=60, deadline=None)
@given(_SEEDS, _POLICIES, st.lists(st.integers(0, 2), max_size=12))
def test_iterators_of_one_placer_do_not_disturb_each_other(
    seed: int, policy: str, turns: list[int]
) -> None:
    nodes, asked = question(seed)
    expected = [one.node for one in placer_of(nodes, policy).best(asked)]
    placer = placer_of(nodes, policy)
    iterators = [placer.best(asked) for _ in range(3)]
    seen: list[list[str]] = [[], [], []]
    for turn in turns:
        placed = next(iterators[turn], None)
        if placed is not None:
            seen[turn].append(placed.node)
    for names, iterator in zip(seen, iterators, strict=True):
        names += [one.node for one in iterator]
    assert seen == [expected] * 3


# Time that runs out.


def expiring(after: int) -> Callable[[], bool]:
    """A clock whose time is up after so many looks."""
    looks = itertools.count()
    return lambda: next(looks) >= after


def test_search_ends_when_time_is_up() -> None:
    placer = placer_of(fleet(a=0, b=2, c=1))
    answer = placer.place(request(claim()), expired=lambda: True)
    assert answer == Unplaceable(undecided=3, failed=())
    assert placer.place(request(claim()), expired=lambda: False) == placer.place(request(claim()))


def test_nodes_that_were_looked_at_before_time_was_up_are_decided() -> None:
    models = {name: [gpu("g0", model=model)] for name, model in zip("abc", "xyz", strict=True)}
    placer, asked = placer_of(cluster(**models)), request(claim(selector=model_is("z")))
    assert placer.place(asked, ["a"]) == _NOTHING
    assert placer.place(asked, expired=lambda: True) == Unplaceable(undecided=2, failed=())


def test_nodes_that_were_not_asked_for_are_not_undecided() -> None:
    placer = placer_of(fleet(a=0, b=2, c=1))
    answer = placer.place(request(claim()), ["a", "b"], expired=lambda: True)
    assert answer == Unplaceable(undecided=2, failed=())


def test_answer_that_is_known_needs_no_time() -> None:
    placer = placer_of(fleet(a=0, b=2, c=1))
    known = placer.place(request(claim()))
    assert placer.place(request(claim()), expired=lambda: True) == known


def test_search_that_is_ended_again_and_again_gets_on() -> None:
    placer, asked = placer_of(fleet(a=0, b=2, c=1, d=1)), request(claim(3))
    answers = [placer.place(asked, expired=expiring(4)) for _ in range(20)]
    assert answers[-1] == placer.place(asked) == _NOTHING


def _choosy() -> ResourceClaim:
    """A claim whose best devices are found by several searches."""

    def alternative(name: str, model: str, count: int) -> dict[str, object]:
        selectors = [{"cel": {"expression": model_is(model)}}]
        return {"name": name, "deviceClassName": "gpu", "count": count, "selectors": selectors}

    return claim_of(
        {
            "name": "many",
            "firstAvailable": [alternative("x", "A100", 3), alternative("y", "H200", 2)],
        },
        {"name": "one", "firstAvailable": [alternative("x", "L4", 1), alternative("y", "H200", 1)]},
    )


@pytest.mark.parametrize("looks", range(16))
def test_what_was_found_before_time_was_up_is_right(looks: int) -> None:
    def nodes() -> Cluster:
        return cluster(
            a=[gpu("x0", model="A100"), *(gpu(f"g{n}", numa=n % 2) for n in range(6))],
            b=[gpu(f"g{n}", numa=n % 2) for n in range(4)],
        )

    expected = placer_of(nodes()).place(request(_choosy()))
    assert isinstance(expected, PlacedClaims)
    assert expected.allocated.score.distance == CLOSENESS.index((NVLINK_DOMAIN, NUMA_NODE))
    placer = placer_of(nodes())
    placer.place(request(_choosy()), expired=expiring(looks))
    again = placer.place(request(_choosy()))
    assert (devices_of(again), isinstance(again, PlacedClaims) and again.allocated.score) == (
        devices_of(expected),
        expected.allocated.score,
    )


@settings(max_examples=100, deadline=None)
@given(_SEEDS, _POLICIES, st.lists(st.integers(0, 12), max_size=4))
def test_searches_that_were_ended_change_no_answer(
    seed: int, policy: str, looks: list[int]
) -> None:
    nodes, asked = question(seed)
    placer = placer_of(nodes, policy)
    for number in looks:
        placer.place(asked, expired=expiring(number))
    expected = [(one.node, one.allocated.score) for one in placer_of(nodes, policy).best(asked)]
    assert [(one.node, one.allocated.score) for one in placer.best(asked)] == expected


# Searches with a limit.


def _two_apart() -> ResourceClaim:
    """Two devices that differ in three attributes."""
    return claim_of(
        {"name": "gpus", "exactly": {"deviceClassName": "gpu", "count": 2}},
        constraints=[{"distinctAttribute": f"gpu.carina.dev/{name}"} for name in _ATTRIBUTES],
    )


_ATTRIBUTES = "left", "right", "side"


def _pairs() -> list[dict[str, object]]:
    """Any two devices have a value of one attribute in common, and differ in the two others."""
    values = (0, 0, 0), (1, 1, 0), (0, 1, 1), (1, 0, 1)
    return [
        {
            "name": f"g{number}",
            "attributes": {
                name: {"int": value} for name, value in zip(_ATTRIBUTES, of_device, strict=True)
            },
        }
        for number, of_device in enumerate(values)
    ]


def test_search_that_stops_at_its_limit_is_undecided() -> None:
    nodes = cluster(a=_pairs())
    short = placer_of(nodes, max_steps=3)
    assert short.place(request(_two_apart())) == Unplaceable(undecided=1, failed=())
    assert placer_of(nodes).place(request(_two_apart())) == _NOTHING


def test_undecided_nodes_are_counted_among_those_asked_for() -> None:
    names = {name: _pairs() for name in "abc"}
    placer = placer_of(cluster(**names), max_steps=3)
    assert placer.place(request(_two_apart())) == Unplaceable(undecided=3, failed=())
    assert placer.place(request(_two_apart()), ["b"]) == Unplaceable(undecided=1, failed=())


@pytest.mark.parametrize("policy", ["upstream", "binpack", "spread", "fragmentation"])
def test_node_on_which_the_search_is_cut_short_leaves_the_claim_to_another(policy: str) -> None:
    """Both nodes have the same partitions, in another order; 14 of the small ones fit."""
    small = {f"l{index:02}": 1000 + index for index in range(20)}
    large = {f"h{index:02}": 1500 + index for index in range(20)}
    total = sum(1000 + index for index in range(14)) + 10
    nodes = Cluster()
    for name, sizes in {"a": {**large, **small}, "b": {**small, **large}}.items():
        nodes.put_node(Node(name))
        for published in partitions(name, total, **sizes):
            nodes.put_slice(published)
    placer = placer_of(nodes, policy, max_steps=200)
    alone = {name: placer.place(request(claim(14)), [name]) for name in "ab"}
    suitable = [name for name, placed in alone.items() if isinstance(placed, PlacedClaims)]
    assert suitable == ["b"]
    placed = placer.place(request(claim(14)))
    assert isinstance(placed, PlacedClaims)
    assert placed.node == "b"


# The same cluster, the same answer.


def test_answer_does_not_depend_on_what_was_in_use_of_other_devices_before() -> None:
    nodes = cluster(a=[gpu("g1"), gpu("g0", numa=0)])
    nodes.put_slice(network("net", gpu("n0", model="nic")))
    placer, asked = placer_of(nodes), request(claim(selector=model_is("H200")))
    before = placer.place(asked)
    give(nodes, claim(selector=model_is("nic")))
    assert placer.place(asked) == placer_of(nodes).place(asked) == before


def test_room_that_comes_back_on_a_device_of_all_nodes_is_used() -> None:
    nodes = Cluster()
    nodes.put_node(Node("a"))
    memory = {"memory": {"value": "80Gi"}}
    nodes.put_slice(
        network("net", {**gpu("n0"), "allowMultipleAllocations": True, "capacity": memory})
    )
    all_of_it = claim(capacity={"requests": {"memory": "80Gi"}})
    share = {"deviceClassName": "gpu", "capacity": {"requests": {"memory": "30Gi"}}}
    asked = request(claim_of(*({"name": name, "exactly": share} for name in ("one", "two"))))
    assert give(nodes, all_of_it) == ["net/n0"]
    placer = placer_of(nodes)
    assert devices_of(placer.place(asked)) == []
    nodes.release(all_of_it.key)
    assert devices_of(placer.place(asked)) == ["net/n0", "net/n0"]


def test_unknown_class_is_an_error_of_the_claim() -> None:
    asked = claim_of({"name": "gpu", "exactly": {"deviceClassName": "nope"}})
    with pytest.raises(AllocationError, match="could not retrieve device class nope"):
        place(cluster(a=[gpu("g0")]), asked)


def test_pool_that_becomes_invalid_is_reported_though_it_was_incomplete_before() -> None:
    nodes = cluster(a=[])
    placer = placer_of(nodes)
    first, second = slices("a", {"devices": [gpu("g0")]}, {"devices": [gpu("g0")]})
    nodes.put_slice(first)
    assert placer.place(request(claim())) == _NOTHING
    nodes.put_slice(second)
    answer = placer.place(request(claim()))
    assert isinstance(answer, Unplaceable)
    assert answer.failed == (
        "a: invalid resource pools were encountered: gpu.carina.dev/a: duplicate device name g0",
    )


def test_error_names_the_first_device_whichever_was_evaluated_first() -> None:
    nodes, model = cluster(a=[{"name": "g0"}, {"name": "g1"}]), model_is("H200")
    placer = placer_of(nodes)
    user = claim()
    give(nodes, user)
    placer.place(request(claim(selector=model)))  # on g1, since g0 is in use
    nodes.release(user.key)
    answer = placer.place(request(claim(selector=model)))
    assert isinstance(answer, Unplaceable)
    (reason,) = answer.failed
    assert "a/g0: CEL runtime error" in reason


def test_error_names_the_claim_that_is_asked_for_not_an_earlier_one_of_its_kind() -> None:
    placer = placer_of(cluster(a=[{"name": "g0"}]))
    first, second = claim(selector=model_is("H200")), claim(selector=model_is("H200"))
    placer.place(request(first))
    answer = placer.place(request(second))
    assert isinstance(answer, Unplaceable)
    (reason,) = answer.failed
    assert reason.startswith(f"a: claim {second.key}: selector #0 on device")


def test_error_of_all_nodes_names_the_claim_that_is_asked_for() -> None:
    placer = placer_of(cluster(a=[gpu("g0")]))
    for asked in (claim(selector="nonsense"), claim(selector="nonsense")):
        with pytest.raises(AllocationError, match=f"node a: claim {asked.key}: selector #0"):
            placer.place(request(asked))


def test_device_of_all_nodes_on_which_a_selector_fails_matters_though_another_refuses_it() -> None:
    nodes = cluster(a=[gpu("g0")])
    nodes.put_slice(network("0-before-a", {"name": "n0"}))
    expressions = [model_is("H200"), f'"model" in device.attributes["{DRIVER}"]']
    selectors = [{"cel": {"expression": expression}} for expression in expressions]
    placer, asked = placer_of(nodes), request(claim(selectors=selectors))
    assert isinstance(placer.place(asked), Unplaceable)  # the selector fails on n0
    held = claim(selector=f'!("model" in device.attributes["{DRIVER}"])')
    assert give(nodes, held) == ["0-before-a/n0"]
    assert devices_of(placer.place(asked)) == ["a/g0"]
    nodes.release(held.key)
    assert isinstance(placer.place(asked), Unplaceable)


def test_wrong_node_is_named_though_no_selected_device_is_on_it() -> None:
    others = {f"n{index}": [gpu("g0", model="A100")] for index in range(20)}
    nodes = cluster(**others, a=[gpu("g0")], wrong=[gpu("g0", model="A100")] * 2)
    placer, asked = placer_of(nodes), request(claim(selector=model_is("H200")))
    assert devices_of(placer.place(asked)) == ["a/g0"]
    give(nodes, claim(selector=model_is("H200")))
    placed = placer.place(asked)
    assert isinstance(placed, Unplaceable)
    assert [reason.partition(":")[0] for reason in placed.failed] == ["wrong"]


def test_answers_stay_right_when_names_of_changed_nodes_were_forgotten() -> None:
    nodes, asked = cluster(a=[gpu("g0")], b=[gpu("g0")]), request(claim())
    placer = placer_of(nodes)
    answer = placer.place(asked)
    assert isinstance(answer, PlacedClaims)
    nodes.allocate("default/other", answer.allocated.allocations[0])
    nodes.remove_node("b")
    nodes.changed_nodes.forget_all_but(nodes.nodes)
    assert isinstance(placer.place(asked), Unplaceable)


def test_pod_without_claims_has_a_place() -> None:
    placed = placer_of(cluster(a=[gpu("g0")])).place(request())
    assert isinstance(placed, PlacedClaims)
    assert (placed.node, placed.allocated.allocations) == ("a", ())


def test_claims_that_differ_in_their_configurations_are_of_one_kind_and_keep_their_own() -> None:
    nodes = cluster(a=[gpu("g0")])
    placer, asked = placer_of(nodes), {"name": "gpus", "exactly": {"deviceClassName": "gpu"}}
    configured = [{"opaque": {"driver": DRIVER, "parameters": {"text": text}}} for text in "xy"]
    requests = [request(claim_of(asked, config=[one])) for one in configured]
    assert requests[0].key == requests[1].key
    for one, text in zip(requests, "xy", strict=True):
        placed = placer.place(one)
        assert isinstance(placed, PlacedClaims)
        (kept,) = placed.allocated.allocations[0].devices.config
        assert kept.opaque is not None
        assert kept.opaque.parameters == {"text": text}
