"""What queues have and ask for, with all that is below them."""

from controller.model.queue import Entitlement, Queue
from controller.model.resource import Cpu, DevicesOf, Resource
from controller.state.accounts import Accounts
from controller.state.journal import Journal
from controller.state.queue_tree import ROOT, QueueTree


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
    assert accounts.allocated == {"top": (30, 3), "a": (10, 1), "b": (20, 2), ROOT: (0, 0)}


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
    assert accounts.allocated == {"top": (10, 1), "a": (10, 1), "b": (0, 0), ROOT: (0, 0)}
    assert accounts.firm == accounts.allocated


def test_requests_add_up_and_can_be_taken_back() -> None:
    accounts, _ = _accounts()
    accounts.request("a", (10, 1))
    accounts.request("b", (1, 1))
    accounts.request("a", (-10, -1))
    assert accounts.requested == {"top": (1, 1), "a": (0, 0), "b": (1, 1), ROOT: (0, 0)}
