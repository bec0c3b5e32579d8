"""Leader election: one leads, and another does when it is gone."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from carina_dra.kube.api_resource import LEASES
from carina_dra.kube.body import ObjectKey
from carina_dra.kube.client import Client, MergePatch
from carina_dra.kube.lease import LeaderElector, LeadershipEnd, LeaseTiming, WorkNotStopped
from tests.contract.kube.backend import ThroughProxy
from tests.eventually import eventually

FAST = LeaseTiming(duration=2, renew_deadline=1.2, retry_period=0.1)
PATIENT = LeaseTiming(duration=30, renew_deadline=20, retry_period=0.1)
"""Outlasts any outage here, also on a busy machine."""


@dataclass
class Candidate:
    """A process that wants to lead: works until it is stopped, and logs that."""

    name: str
    elector: LeaderElector
    log: list[str]
    stubborn: threading.Event = field(default_factory=threading.Event)
    stopping: threading.Event = field(default_factory=threading.Event)
    outcome: LeadershipEnd | BaseException | None = None
    thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self.stubborn.set()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def stop(self) -> None:
        self.stopping.set()
        self.thread.join(10)
        assert not self.thread.is_alive()

    def _run(self) -> None:
        try:
            self.outcome = self.elector.run(self._work, self.stopping)
        except (WorkNotStopped, ValueError) as error:
            self.outcome = error

    def _work(self, stop: threading.Event) -> None:
        self.log.append(f"{self.name} begins")
        stop.wait(60)
        self.stubborn.wait(60)
        self.log.append(f"{self.name} ends")


class Election:
    """Candidates for one Lease, with a log of who worked when."""

    def __init__(self, namespace: str) -> None:
        self.lease = ObjectKey(namespace, "controller")
        self.log: list[str] = []
        self.candidates: list[Candidate] = []

    def join(self, client: Client, name: str, timing: LeaseTiming = FAST) -> Candidate:
        elector = LeaderElector(client, self.lease, name, timing=timing)
        self.candidates.append(Candidate(name, elector, self.log))
        return self.candidates[-1]


@pytest.fixture
def election(namespace: str) -> Iterator[Election]:
    election = Election(namespace)
    yield election
    for candidate in election.candidates:
        candidate.stubborn.set()
        candidate.stop()


@pytest.fixture
def spec(api: Client, election: Election) -> Callable[[str], object]:
    def read(field: str) -> object:
        body = api.get(LEASES, election.lease.name, namespace=election.lease.namespace)
        return body["spec"].get(field)

    return read


def test_of_two_one_leads(api: Client, election: Election, spec: Callable[[str], object]) -> None:
    first = election.join(api, "first")
    eventually(lambda: election.log == ["first begins"])
    second = election.join(api, "second")
    renewed = spec("renewTime")
    eventually(lambda: spec("renewTime") != renewed)
    assert election.log == ["first begins"]
    assert (first.elector.leading, second.elector.leading) == (True, False)
    assert spec("holderIdentity") == "first"
    assert spec("leaseTransitions") == 0


def test_who_stops_makes_room_at_once(
    api: Client, election: Election, spec: Callable[[str], object]
) -> None:
    first = election.join(api, "first")
    eventually(lambda: election.log == ["first begins"])
    first.stop()
    assert first.outcome is LeadershipEnd.STOPPED
    assert not spec("holderIdentity")
    election.join(api, "second")
    eventually(lambda: election.log == ["first begins", "first ends", "second begins"], within=1.5)
    assert spec("leaseTransitions") == 1


def test_who_follows_knows_whether_the_last_leader_released_the_lease(
    api: Client, election: Election
) -> None:
    first = election.join(api, "first")
    eventually(lambda: election.log == ["first begins"])
    assert not first.elector.was_released
    first.stop()
    second = election.join(api, "second")
    eventually(lambda: "second begins" in election.log)
    assert second.elector.was_released
    usurp = MergePatch({"spec": {"holderIdentity": "dead"}})
    api.patch(LEASES, election.lease.name, usurp, namespace=election.lease.namespace)
    third = election.join(api, "third")
    eventually(lambda: "third begins" in election.log)
    assert not third.elector.was_released


def test_a_lease_is_not_released_if_the_work_says_so(
    api: Client, election: Election, spec: Callable[[str], object]
) -> None:
    first = election.join(api, "first")
    eventually(lambda: election.log == ["first begins"])
    first.elector.releases = False
    first.stop()
    assert spec("holderIdentity") == "first"
    second = election.join(api, "second")
    eventually(lambda: "second begins" in election.log)
    assert not second.elector.was_released


def test_who_renews_still_knows_that_the_lease_had_been_released(
    api: Client, election: Election, spec: Callable[[str], object]
) -> None:
    election.join(api, "first")
    eventually(lambda: election.log == ["first begins"])
    election.candidates[0].stop()
    second = election.join(api, "second")
    eventually(lambda: "second begins" in election.log)
    renewed = spec("renewTime")
    eventually(lambda: spec("renewTime") != renewed)
    assert second.elector.was_released


def test_who_cannot_renew_ends_its_work_before_another_begins(
    api: Client, disturbed: ThroughProxy, election: Election
) -> None:
    first = election.join(disturbed.client, "first")
    eventually(lambda: election.log == ["first begins"])
    election.join(api, "second")
    disturbed.proxy.refuse()
    eventually(lambda: len(election.log) == 3)
    assert election.log == ["first begins", "first ends", "second begins"]
    first.thread.join(5)
    assert first.outcome is LeadershipEnd.LOST
    assert not first.elector.leading


def test_a_network_that_swallows_everything_is_no_excuse(
    api: Client, disturbed: ThroughProxy, election: Election
) -> None:
    election.join(disturbed.client, "first")
    eventually(lambda: election.log == ["first begins"])
    election.join(api, "second")
    disturbed.proxy.fall_silent()
    eventually(lambda: len(election.log) == 3)
    assert election.log == ["first begins", "first ends", "second begins"]


def test_who_was_paused_beyond_its_deadline_leads_no_more_even_before_it_notices(
    api: Client, election: Election
) -> None:
    pause = 0.0
    elector = LeaderElector(
        api, election.lease, "first", timing=FAST, clock=lambda: time.monotonic() + pause
    )
    first = Candidate("first", elector, election.log)
    election.candidates.append(first)
    eventually(lambda: elector.leading)
    pause = FAST.renew_deadline
    assert not elector.leading
    eventually(lambda: first.outcome is LeadershipEnd.LOST)


def test_an_outage_shorter_than_the_deadline_changes_nothing(
    disturbed: ThroughProxy, election: Election, spec: Callable[[str], object]
) -> None:
    election.join(disturbed.client, "first", PATIENT)
    eventually(lambda: election.log == ["first begins"])
    accepted = disturbed.proxy.accepted
    disturbed.proxy.refuse()
    eventually(lambda: disturbed.proxy.accepted > accepted + 1)
    disturbed.proxy.recover()
    renewed = spec("renewTime")
    eventually(lambda: spec("renewTime") != renewed)
    assert election.log == ["first begins"]


def test_who_sees_another_hold_the_lease_stops(api: Client, election: Election) -> None:
    first = election.join(api, "first")
    eventually(lambda: election.log == ["first begins"])
    usurp = MergePatch({"spec": {"holderIdentity": "another"}})
    api.patch(LEASES, election.lease.name, usurp, namespace=election.lease.namespace)
    eventually(lambda: election.log == ["first begins", "first ends"])
    first.thread.join(5)
    assert first.outcome is LeadershipEnd.LOST


def test_a_lease_that_is_deleted_is_made_again(
    api: Client, election: Election, spec: Callable[[str], object]
) -> None:
    election.join(api, "first")
    eventually(lambda: election.log == ["first begins"])
    api.delete(LEASES, election.lease.name, namespace=election.lease.namespace)

    def held() -> bool:
        leases = api.list(LEASES).items
        return any(lease["spec"].get("holderIdentity") == "first" for lease in leases)

    eventually(held)
    assert election.log == ["first begins"]


def test_work_that_goes_on_after_the_lease_is_an_error(
    disturbed: ThroughProxy, election: Election
) -> None:
    first = election.join(disturbed.client, "first")
    eventually(lambda: election.log == ["first begins"])
    first.stubborn.clear()
    disturbed.proxy.refuse()
    first.thread.join(10)
    assert isinstance(first.outcome, WorkNotStopped)


def test_work_that_fails_releases_the_lease(
    api: Client, election: Election, spec: Callable[[str], object]
) -> None:
    def work(stop: threading.Event) -> None:
        raise ValueError("a bug")

    elector = LeaderElector(api, election.lease, "first", timing=FAST)
    with pytest.raises(ValueError, match="a bug"):
        elector.run(work, threading.Event())
    assert not spec("holderIdentity")
