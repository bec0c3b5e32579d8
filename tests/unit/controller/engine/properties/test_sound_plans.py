"""No plan breaks a rule: of room, gangs, topologies, queues, victims or budgets."""

from itertools import product
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from controller.engine.decide.cycle import plan
from controller.engine.model.plan import Plan
from controller.engine.model.resource import describe
from tests.length import seeds
from tests.unit.controller.engine.properties.clusters import leaves
from tests.unit.controller.engine.properties.examples import examples
from tests.unit.controller.engine.properties.rules import entitlement_of, violations
from tests.unit.controller.engine.properties.running_cluster import RunningCluster, random_cluster

_ROUNDS = 6


@examples(40)
@given(st.randoms(use_true_random=False))
def test_no_plan_of_a_random_cluster_breaks_a_rule(rng: Random) -> None:
    cluster = random_cluster(rng, plan)
    for _ in range(_ROUNDS):
        _decide_soundly(cluster)
        cluster.pass_round()


def test_no_plan_of_a_long_run_breaks_a_rule() -> None:
    for seed in seeds(120):
        cluster = random_cluster(Random(seed), plan)
        for _ in range(_ROUNDS):
            _decide_soundly(cluster, f"seed {seed}")
            cluster.pass_round()


@examples(40)
@given(st.randoms(use_true_random=False))
def test_children_divide_the_fair_share_of_their_queue(rng: Random) -> None:
    cluster = random_cluster(rng, plan)
    shares = plan(cluster.snapshot()).fair_shares
    queues = {queue.name: queue for queue in cluster.queues}
    assert shares.keys() == queues.keys()
    resources = {resource for queue in cluster.queues for resource in queue.entitlements}
    for parent, resource in product(queues.keys() - {*leaves(cluster.queues)}, resources):
        children = {
            queue.name: entitlement_of(queues, queue.name, resource)
            for queue in cluster.queues
            if queue.parent == parent
        }
        named = describe(resource)
        total, share = sum(shares[name][named] for name in children), shares[parent][named]
        if total > share:  # only quotas may come to more than there is
            for name, entitlement in children.items():
                assert entitlement.quota is None or shares[name][named] <= entitlement.quota
        if all(entitlement.weight for entitlement in children.values()):
            assert total >= share


@examples(40)
@given(st.randoms(use_true_random=False))
def test_no_fair_share_is_above_a_limit(rng: Random) -> None:
    cluster = random_cluster(rng, plan)
    shares = plan(cluster.snapshot()).fair_shares
    for queue in cluster.queues:
        for resource, entitlement in queue.entitlements.items():
            limit = entitlement.limit
            assert limit is None or 0 <= shares[queue.name][describe(resource)] <= limit


def _decide_soundly(cluster: RunningCluster, name: str = "") -> Plan:
    decided = plan(cluster.snapshot())
    assert violations(cluster, decided) == [], name
    cluster.apply(decided)
    return decided
