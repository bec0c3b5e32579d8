"""What queues have and ask for, with all that is below them."""

from carina_dra.placement.cluster.gpu import GPU, GpuId
from controller.engine.model.queue import Entitlement, Queue
from controller.engine.model.resource import Cpu, DevicesOf, Resource
from controller.engine.state.accounts import Accounts
from controller.engine.state.charge import GpuPart
from controller.engine.state.journal import Journal
from controller.engine.state.queue_tree import LOST, ROOT, QueueTree


def _accounts() -> tuple[Accounts, Journal]:
    """Queues a and b below top; they count cpu, and devices."""
    both: dict[Resource, Entitlement] = {Cpu(): Entitlement(), DevicesOf("gpu"): Entitlement()}
    tree = QueueTree([Queue("top", entitlements=both), Queue("a", "top"), Queue("b", "top")])
    journal = Journal()
    return Accounts(tree, journal), journal


def test_a_queue_and_all_above_it_are_charged() -> None:
    accounts, _ = _accounts()
    accounts.take("a", (10, 1), preemptible=True)
    accounts.take("b", (20, 2), preemptible=True)
    nobody = {ROOT: (0, 0), LOST: (0, 0)}
    assert accounts.allocated == {"top": (30, 3), "a": (10, 1), "b": (20, 2)} | nobody


def test_what_is_not_preemptible_is_counted_apart() -> None:
    accounts, _ = _accounts()
    accounts.take("a", (10, 1), preemptible=False)
    accounts.take("a", (5, 0), preemptible=True)
    assert (accounts.allocated["top"], accounts.firm["top"]) == ((15, 1), (10, 1))


def test_giving_back_is_the_inverse_of_taking() -> None:
    accounts, _ = _accounts()
    for preemptible in (True, False):
        accounts.take("a", (10, 1), preemptible=preemptible)
        accounts.give("a", (10, 1), preemptible=preemptible)
    assert accounts.allocated["top"] == accounts.firm["top"] == accounts.zero


def test_a_rollback_undoes_taking_and_giving() -> None:
    accounts, journal = _accounts()
    accounts.take("a", (10, 1), preemptible=False)
    mark = journal.mark()
    accounts.give("a", (10, 1), preemptible=False)
    accounts.take("b", (7, 7), preemptible=True)
    journal.rollback(mark)
    assert accounts.allocated == {
        "top": (10, 1),
        "a": (10, 1),
        "b": (0, 0),
        ROOT: (0, 0),
        LOST: (0, 0),
    }
    assert accounts.firm == accounts.allocated


def test_requests_add_up_and_can_be_taken_back() -> None:
    accounts, _ = _accounts()
    accounts.request("a", (10, 1))
    accounts.request("b", (1, 1))
    accounts.request("a", (-10, -1))
    assert accounts.requested == {
        "top": (1, 1),
        "a": (0, 0),
        "b": (1, 1),
        ROOT: (0, 0),
        LOST: (0, 0),
    }


def _part(part: int) -> GpuPart:
    """A part of the one GPU, which the second resource counts."""
    return GpuPart(GpuId("driver", "pool", "gpu-0"), part, (1,), frozenset({1}), frozenset({1}))


def test_parts_of_a_gpu_are_at_most_a_whole_one_until_they_are_given_back() -> None:
    accounts, _ = _accounts()
    most = [_part(GPU * 2 // 3)]
    counted = []
    for change in (accounts.take, accounts.take, accounts.give, accounts.give):
        change("a", accounts.zero, preemptible=False, gpus=most)
        counted.append((accounts.allocated["top"][1], accounts.firm["top"][1]))
    assert counted == [(each, each) for each in (GPU * 2 // 3, GPU, GPU * 2 // 3, 0)]


def test_each_gpu_of_which_there_is_a_part_is_kept_from_others_as_a_whole_one() -> None:
    accounts, journal = _accounts()
    third = _part(GPU // 3)
    other = third._replace(gpu=GpuId("driver", "pool", "gpu-1"))
    accounts.take("a", (5, 0), preemptible=False, gpus=[third])
    mark = journal.mark()
    accounts.take("b", (0, GPU), preemptible=True, gpus=[third, other])
    kept = {name: accounts.keeps(name) for name in ("a", "b", "top")}
    assert kept == {"a": (5, GPU), "b": (0, 3 * GPU), "top": (5, 3 * GPU)}
    assert [accounts.firmly_keeps(name)[1] for name in ("a", "b", "top")] == [GPU, 0, GPU]
    assert (accounts.firm_gpus("top"), accounts.firm_gpus("b")) == ({third.gpu}, set())
    journal.rollback(mark)
    assert (accounts.keeps("top"), accounts.keeps("b")) == ((5, GPU), accounts.zero)


def test_parts_that_are_preemptible_are_not_counted_as_firm() -> None:
    accounts, _ = _accounts()
    accounts.take("a", accounts.zero, preemptible=True, gpus=[_part(GPU)])
    assert (accounts.allocated["a"][1], accounts.firm["a"][1]) == (GPU, 0)


def test_every_change_can_be_noticed() -> None:
    accounts, journal = _accounts()
    mark, seen = journal.mark(), [accounts.moment]
    accounts.take("a", (10, 1), preemptible=True)
    seen.append(accounts.moment)
    accounts.give("a", (5, 0), preemptible=True)
    seen.append(accounts.moment)
    accounts.request("a", (10, 1))
    seen.append(accounts.moment)
    journal.rollback(mark)
    seen.append(accounts.moment)
    assert len(set(seen)) == len(seen)
