"""How it is with shares, by one report after the other."""

from hypothesis import given
from hypothesis import strategies as st

from carina_dra.sharing.message import (
    EndedProcess,
    Reference,
    ShareUse,
    SharingReport,
    Unwatched,
    WantedShare,
)
from kubelet_plugin.sharing.standing import (
    CALM,
    EndedViolator,
    NotWatched,
    ShareExceeded,
    Standings,
    WithinShare,
    standings,
)

KEY = ("claim", "GPU-0")
SHARES = (
    WantedShare(
        claim=Reference(namespace="default", name="train", uid="claim"),
        gpu="GPU-0",
        memory_mib=1024,
        cores=10,
    ),
)


def ended(at: float, memory_mib: int = 900) -> EndedProcess:
    pod = Reference(namespace="default", name="train", uid="pod")
    return EndedProcess(pod=pod, container_id=None, memory_mib=memory_mib, time=at, why="memory")


def report(
    at: float,
    *,
    used: int = 0,
    since: float | None = None,
    last: EndedProcess | None = None,
    **more: object,
) -> SharingReport:
    use = ShareUse(
        gpu="GPU-0",
        claims=("claim",),
        given_mib=1024,
        given_cores=10,
        used_mib=used,
        pods=(),
        idle_since=None,
        exceeded_since=since,
        ended=0 if last is None else 1,
        last_ended=last,
    )
    return SharingReport.model_validate({"generation": 1, "time": at, "uses": (use,), **more})


def after(*reports: SharingReport) -> Standings:
    found: Standings = {}
    for seen in reports:
        found = standings(found, SHARES, seen)
    return found


def test_a_share_is_within_or_exceeded_as_the_report_says() -> None:
    assert after(report(10.0, used=1000)) == {KEY: WithinShare()}
    assert after(report(10.0, used=2000, since=9.0)) == {KEY: ShareExceeded(9.0, 2000, 1024, 10.0)}


def test_of_a_share_that_is_not_reported_nothing_is_said() -> None:
    assert after(SharingReport(generation=0, time=1.0)) == {}
    assert after(report(1.0), SharingReport(generation=0, time=2.0)) == {}


def test_nothing_is_said_of_claims_that_are_not_recorded() -> None:
    assert standings({}, (), report(1.0, used=2000, since=1.0)) == {}


def test_it_stays_as_it_began_while_it_goes_on() -> None:
    first = after(report(10.0, used=2000, since=9.0))
    assert first == after(report(10.0, used=2000, since=9.0), report(20.0, used=9000, since=9.0))


def test_it_is_within_again_when_it_was_for_a_while() -> None:
    begun = report(10.0, used=2000, since=10.0)
    assert KEY in after(begun, report(11.0))
    assert after(begun, report(11.0)) == after(begun)
    assert after(begun, report(10.0 + CALM)) == {KEY: WithinShare()}


def test_it_stays_exceeded_where_the_clock_has_not_moved() -> None:
    begun = report(10.0, used=2000, since=10.0)
    assert after(begun, report(10.0)) == after(begun)


def test_it_is_within_where_the_clock_was_set_back() -> None:
    begun = report(10.0, used=2000, since=10.0)
    assert after(begun, report(9.5)) == {KEY: WithinShare()}


@given(st.lists(st.booleans(), min_size=1, max_size=200))
def test_who_flaps_changes_at_most_twice_in_the_calm_time(exceeding: list[bool]) -> None:
    found: Standings = {}
    changes, last = [], None
    for second, exceeds in enumerate(exceeding):
        at = second * 10.0
        seen = report(at, used=2000, since=at) if exceeds else report(at)
        found = standings(found, SHARES, seen)
        kind = type(found[KEY])
        if last is not None and kind is not last:
            changes.append(at)
        last = kind
    within = [later - earlier for earlier, later in zip(changes, changes[2:], strict=False)]
    assert all(seconds >= CALM for seconds in within)


def test_a_gpu_whose_processes_cannot_be_told_has_the_reason_in_one_line() -> None:
    reason = "not\nsupported" + "x" * 500
    found = after(report(1.0, unwatched=(Unwatched(gpu="GPU-0", reason=reason),)))
    standing = found[KEY]
    assert isinstance(standing, NotWatched)
    assert standing.reason.startswith("not?supported")
    assert len(standing.reason) == 200


def test_a_process_that_was_ended_is_told_until_it_is_calm() -> None:
    first = ended(9.0)
    told = {KEY: EndedViolator(first, 1024, 9.0)}
    assert after(report(10.0, used=2000, since=9.0, last=first)) == told
    assert after(report(10.0, last=first), report(9.0 + CALM - 1, last=first)) == told
    assert after(report(10.0, last=first), report(9.0 + CALM, last=first)) == {KEY: WithinShare()}


def test_of_processes_that_are_ended_again_and_again_the_first_is_told() -> None:
    reports = [report(at + 1.0, since=at, last=ended(at, int(at))) for at in range_of_seconds()]
    assert after(*reports) == {KEY: EndedViolator(ended(0.0, 0), 1024, 0.0)}


def range_of_seconds() -> list[float]:
    return [float(at) for at in range(0, int(3 * CALM), 2)]


def test_a_share_that_was_exceeded_is_told_as_ended_once_a_process_was() -> None:
    assert after(report(10.0, used=2000, since=9.0), report(11.0, last=ended(11.0))) == {
        KEY: EndedViolator(ended(11.0), 1024, 11.0)
    }


def test_that_carina_sharing_starts_again_changes_nothing() -> None:
    told = after(report(10.0, last=ended(9.0)), report(20.0))
    assert told == {KEY: EndedViolator(ended(9.0), 1024, 9.0)}
    assert standings(told, SHARES, report(9.0 + CALM)) == {KEY: WithinShare()}
