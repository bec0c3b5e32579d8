"""What a question costs, when it is cut short, and that this does not depend on what is known."""

from random import Random

import pytest

from carina_dra.placement.choice.placer import PlacedClaims, Placement, PlacementRequest, Placer
from carina_dra.resource import ResourceClaim
from carina_dra.step_budget import OutOfStepsError, StepBudget
from tests.samples.fleet import DRIVER, claim, claim_of, cluster, give, gpu, placer_of, request

_TEN = "[0,1,2,3,4,5,6,7,8,9]"
_TYPICAL = 50
"""Steps that suffice for the claims of everybody else here."""


def _costly(text: str) -> str:
    """A selector that takes 90,000 units of CEL's cost on each device, and selects none."""
    body = f"device.driver != '{text}'"
    for number in range(4):
        body = f"{_TEN}.all(x{number}, {body})"
    return body + " && device.driver == 'none'"


def _contradiction() -> ResourceClaim:
    """Devices that only an exhaustive search can refuse, since no two of them are alike."""
    names = [f"r{index}" for index in range(8)]
    unlike = {"cel": {"expression": f"device.attributes['{DRIVER}'].nvlinkDomain != 'x'"}}
    exactly = {"deviceClassName": "gpu", "selectors": [unlike]}
    wanted = ({"name": name, "exactly": exactly} for name in names)
    serial = f"{DRIVER}/model"
    return claim_of(
        *wanted,
        constraints=[
            {"requests": [names[0], names[1]], "matchAttribute": serial},
            {"requests": [names[1], names[-1]], "matchAttribute": serial},
            {"requests": [names[0], names[-1]], "distinctAttribute": serial},
        ],
    )


def _nodes(number: int, gpus: int = 8) -> dict[str, list[dict[str, object]]]:
    models = ("A", "B")
    return {
        f"n{index:03}": [
            gpu(f"g{one}", model=models[one % 2], numa=one % 2, nvlink=f"x{one}")
            for one in range(gpus)
        ]
        for index in range(number)
    }


def _spent(placer: Placer, asked: PlacementRequest) -> int:
    budget = StepBudget(10**9)
    placer.place(asked, budget=budget)
    return budget.spent


def test_search_ends_with_the_budget() -> None:
    placer, budget = placer_of(cluster(**_nodes(20, 24))), StepBudget(5_000)
    with pytest.raises(OutOfStepsError):
        placer.place(request(_contradiction()), budget=budget)
    assert budget.left == 0


def test_selectors_end_with_the_budget() -> None:
    placer, budget = placer_of(cluster(**_nodes(20))), StepBudget(5_000)
    with pytest.raises(OutOfStepsError):
        placer.place(request(claim(selector=_costly("x"))), budget=budget)


def test_all_nodes_together_have_the_one_budget() -> None:
    placer = placer_of(cluster(**_nodes(20)))
    asked = request(claim(selector=_costly("x")))
    of_one = _spent(placer_of(cluster(**_nodes(1))), asked)
    assert _spent(placer, asked) == pytest.approx(20 * of_one, rel=0.01)


def test_best_nodes_are_charged_as_they_are_asked_for() -> None:
    budget = StepBudget(5_000)
    with pytest.raises(OutOfStepsError):
        for _ in placer_of(cluster(**_nodes(20))).best(
            request(claim(selector=_costly("x"))), budget=budget
        ):
            pass


def test_what_is_not_finished_is_not_remembered_as_a_result() -> None:
    nodes = cluster(**_nodes(2))
    placer = placer_of(nodes)
    selector = f"{_TEN}.all(x, {_TEN}.all(y, device.driver != 'x'))"
    asked = request(claim(2, selector=selector))
    for steps in range(0, 300, 7):
        try:
            placer.place(asked, budget=StepBudget(steps))
        except OutOfStepsError:
            continue
    assert placer.place(asked) == placer_of(nodes).place(asked)


def test_question_asked_again_costs_the_same() -> None:
    placer = placer_of(cluster(**_nodes(20)))
    for asked in map(request, (claim(), claim(16), claim(2), claim(selector=_costly("x")))):
        assert _spent(placer, asked) == _spent(placer, asked) > 0


def test_question_costs_an_attempt_its_findings_once() -> None:
    placer, budget = placer_of(cluster(**_nodes(20))), StepBudget(10**9)
    asked = request(claim(selector=_costly("x")))
    placer.place(asked, budget=budget)
    before = budget.spent
    placer.place(asked, budget=budget)
    assert budget.spent - before < _TYPICAL


def test_budget_runs_out_with_and_without_what_is_known_alike() -> None:
    nodes = cluster(**_nodes(10))
    asked = request(claim(selector=_costly("x")))
    known = placer_of(nodes)
    known.place(asked)
    whole = _spent(known, asked)
    for limit in range(0, whole + 2, whole // 7):
        assert _outcome(known, asked, limit) == _outcome(placer_of(nodes), asked, limit)


def _outcome(placer: Placer, asked: PlacementRequest, limit: int) -> Placement | str:
    try:
        return placer.place(asked, budget=StepBudget(limit))
    except OutOfStepsError as error:
        return str(error)


def test_node_that_would_not_have_been_looked_at_is_not_charged() -> None:
    nodes = cluster(**_nodes(10))
    placer, fresh = placer_of(nodes), placer_of(nodes)
    asked = request(claim(2))
    for placed in placer.best(asked):
        assert isinstance(placed, PlacedClaims)  # now all nodes are known
    assert _spent(placer, asked) == _spent(fresh, asked)


def test_node_that_has_changed_is_charged_as_it_is_now() -> None:
    nodes = cluster(**_nodes(6))
    placer = placer_of(nodes)
    asked = request(claim(2))
    placer.place(asked)
    give(nodes, claim())
    assert _spent(placer, asked) == _spent(placer_of(nodes), asked)


def test_some_nodes_cost_what_they_cost_alone() -> None:
    nodes = cluster(**_nodes(10))
    placer, asked = placer_of(nodes), request(claim(selector=_costly("x")))
    placer.place(asked)
    few = ["n003", "n007"]
    first, again = StepBudget(10**9), StepBudget(10**9)
    placer_of(nodes).place(asked, few, budget=first)
    placer.place(asked, few, budget=again)
    assert first.spent == again.spent


def test_ordinary_claims_cost_little() -> None:
    placer = placer_of(cluster(**_nodes(100)))
    for asked in (claim(), claim(2), claim(8)):
        assert _spent(placer, request(asked)) < _TYPICAL


@pytest.mark.parametrize("seed", range(40))
def test_random_questions_cost_the_same_whatever_is_known(seed: int) -> None:
    random = Random(seed)
    nodes = cluster(
        **{
            f"n{index}": [
                gpu(f"g{one}", model=random.choice("ABC"), numa=random.randrange(2))
                for one in range(random.randint(1, 5))
            ]
            for index in range(random.randint(2, 8))
        }
    )
    known, kinds = placer_of(nodes), [_random_claim(random) for _ in range(5)]
    for number in range(12):
        asked = request(random.choice(kinds))
        some = random.sample(sorted(nodes.nodes), random.randint(1, len(nodes.nodes)))
        among = random.choice((None, None, some))
        before, fresh = StepBudget(10**9), StepBudget(10**9)
        placed = known.place(asked, among, budget=before)
        placer_of(nodes).place(asked, among, budget=fresh)
        assert before.spent == fresh.spent
        if isinstance(placed, PlacedClaims) and random.random() < 0.5:
            nodes.allocate(f"taken/{number}", placed.allocated.allocations[0])
        elif number:
            nodes.release(f"taken/{random.randrange(number)}")


def _random_claim(random: Random) -> ResourceClaim:
    count = random.randint(1, 3)
    model = f"device.attributes['{DRIVER}'].model"
    exactly = {"deviceClassName": "gpu", "count": count}
    same = {"matchAttribute": "resource.kubernetes.io/numaNode"}
    return random.choice(
        (
            claim(count),
            claim(count, selector=f"{_TEN}.all(x, {model} != 'x{random.randrange(3)}')"),
            claim(count, selector=f"{model} == '{random.choice('ABC')}'"),
            claim_of({"name": "a", "exactly": exactly}, constraints=[same]),
            claim_of(
                {"name": "a", "exactly": exactly},
                {"name": "b", "exactly": exactly},
                constraints=[{**same, "requests": ["a"]}, {"distinctAttribute": f"{DRIVER}/model"}],
            ),
        )
    )
