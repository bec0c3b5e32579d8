"""From samples to a report."""

from carina_dra.sharing.message import (
    EndedProcess,
    SharingReport,
    Strangers,
    Unwatched,
    WantedShares,
)
from sharing.observation import NO_PAST, GpuSample, Past, Seen, Unseen, observe, with_ended
from sharing.use import GpuProcess
from tests.unit.sharing.samples import process, reference, share, wanted


def report(asked: WantedShares, *samples: GpuSample) -> SharingReport:
    """The last report of samples of GPU-0, one each second from 0 on."""
    past: Past = NO_PAST
    seen = None
    for now, sample in enumerate(samples):
        seen = observe(asked, {"GPU-0": sample}, past, float(now))
        past = seen.past
    assert seen is not None
    return seen.report


def seen(*processes: GpuProcess) -> Seen:
    return Seen(processes)


def test_a_use_is_the_sum_of_its_pods() -> None:
    (use,) = report(
        wanted(share("a", "p", "q")), seen(process("p", 300, 10), process("q", 400))
    ).uses
    assert (use.given_mib, use.given_cores, use.used_mib) == (1000, 10, 700)
    assert [pod.memory_mib for pod in use.pods] == [300, 400]


def test_it_has_the_generation_of_what_is_wanted_and_its_time() -> None:
    told = report(wanted(share("a", "p"), generation=7), seen(), seen())
    assert (told.generation, told.time) == (7, 1.0)


def test_pods_that_share_a_claim_exceed_it_together() -> None:
    both = seen(process("p", 600), process("q", 600))
    (use,) = report(wanted(share("a", "p", "q")), both, both).uses
    assert (use.exceeded_since, use.exceeded) == (0.0, 1)


def test_a_pod_with_two_claims_may_use_their_sum() -> None:
    sample = seen(process("p", 1900))
    (use,) = report(wanted(share("a", "p"), share("b", "p")), sample, sample).uses
    assert (use.used_mib, use.exceeded_since) == (1900, None)


def test_a_neighbour_has_not_exceeded() -> None:
    sample = seen(process("p", 5000), process("q", 10))
    first, second = report(wanted(share("a", "p"), share("b", "q")), sample, sample).uses
    assert (first.exceeded, second.exceeded) == (1, 0)


def test_a_use_is_idle_while_none_of_its_processes_computes() -> None:
    asked = wanted(share("a", "p"))
    computes, idle, unknown = (seen(process("p", 1, sm)) for sm in (5, 0, None))
    assert report(asked, computes, idle, idle).uses[0].idle_since == 1.0
    assert report(asked, idle, computes).uses[0].idle_since is None
    assert report(asked, idle, unknown).uses[0].idle_since is None
    assert report(asked, seen(), seen()).uses[0].idle_since == 0.0


def test_a_use_is_idle_only_while_all_of_its_pods_are() -> None:
    asked = wanted(share("a", "p", "q"))
    assert report(asked, seen(process("p", 1, 0), process("q", 1, 5))).uses[0].idle_since is None


def test_processes_of_others_are_strangers() -> None:
    told = report(
        wanted(share("a", "p")), seen(process("p", 1), process("other", 20), process(None, 30))
    )
    assert told.strangers == (Strangers(gpu="GPU-0", processes=2, memory_mib=50),)
    assert report(wanted(share("a", "p")), seen(process("p", 1))).strangers == ()


def test_a_gpu_whose_processes_cannot_be_told_has_no_uses() -> None:
    told = report(wanted(share("a", "p")), Unseen("it is lost"))
    assert told.uses == ()
    assert told.unwatched == (Unwatched(gpu="GPU-0", reason="it is lost"),)


def test_what_was_exceeded_is_known_after_a_time_without_samples() -> None:
    much = seen(process("p", 5000))
    (use,) = report(wanted(share("a", "p")), much, much, Unseen("lost"), much).uses
    assert (use.exceeded_since, use.exceeded) == (0.0, 1)


def after_two(asked: WantedShares, *processes: GpuProcess) -> Past:
    """What two samples leave."""
    past = NO_PAST
    for now in range(2):
        past = observe(asked, {"GPU-0": seen(*processes)}, past, float(now)).past
    return past


def test_a_use_whose_claims_have_changed_keeps_its_counts() -> None:
    past = after_two(wanted(share("a", "p")), process("p", 5000))
    sample = {"GPU-0": seen(process("p", 5000))}
    (use,) = observe(wanted(share("a", "p"), share("b", "p")), sample, past, 2.0).report.uses
    assert (use.exceeded, use.exceeded_since) == (1, 0.0)


def test_the_uses_that_another_has_become_keep_its_counts() -> None:
    past = after_two(wanted(share("a", "p"), share("b", "p", "q")), process("p", 5000))
    apart = wanted(share("a", "p"), share("b", "q"))
    first, second = observe(apart, {"GPU-0": seen()}, past, 2.0).report.uses
    assert (first.exceeded, second.exceeded) == (1, 1)


def test_who_comes_to_a_use_that_has_exceeded_has_not() -> None:
    past = after_two(wanted(share("a", "p"), share("b", "q")), process("p", 1500))
    joined = wanted(share("a", "p"), share("b", "p", "q"))
    (use,) = observe(joined, {"GPU-0": seen(process("p", 1500))}, past, 2.0).report.uses
    assert (use.exceeded, use.exceeded_since) == (1, None)


def test_a_use_is_idle_since_all_were_that_it_was() -> None:
    asked = wanted(share("a", "p"), share("b", "q"))
    past = NO_PAST
    for now, sm in enumerate((5, 0, 0)):
        sample = {"GPU-0": seen(process("p", 1, 0), process("q", 1, sm))}
        past = observe(asked, sample, past, float(now)).past
    joined = wanted(share("a", "p"), share("b", "p", "q"))
    (use,) = observe(joined, {"GPU-0": seen()}, past, 3.0).report.uses
    assert use.idle_since == 1.0


def test_a_process_without_a_figure_counts_as_none_and_is_said() -> None:
    told = report(
        wanted(share("a", "p")),
        seen(process("p", 300), process("p", None), process(None, None)),
    )
    assert told.uses[0].used_mib == 300
    assert (told.uses[0].pods[0].processes, told.uses[0].pods[0].unmeasured) == (2, 1)
    assert told.strangers == (Strangers(gpu="GPU-0", processes=1, memory_mib=0, unmeasured=1),)


def test_what_was_ended_is_in_the_report_and_in_those_after_it() -> None:
    asked = wanted(share("a", "p"))
    past = after_two(asked, process("p", 5000, pid=7))
    sample = {"GPU-0": seen(process("p", 5000, pid=7))}
    found = observe(asked, sample, past, 2.0)
    (use,) = with_ended(found, found.violators).report.uses
    assert use.ended == 1
    assert use.last_ended == EndedProcess(
        pod=reference("p"), container_id=None, memory_mib=5000, time=2.0, why="memory"
    )
    later = observe(asked, {"GPU-0": seen()}, with_ended(found, found.violators).past, 3.0)
    assert (later.report.uses[0].ended, later.report.uses[0].last_ended) == (1, use.last_ended)


def test_who_could_not_be_ended_is_tried_again() -> None:
    asked = wanted(share("a", "p"))
    sample = {"GPU-0": seen(process("p", 5000))}
    found = observe(asked, sample, after_two(asked, process("p", 5000)), 2.0)
    spared = with_ended(found, ())
    assert spared.report.uses[0].ended == 0
    assert observe(asked, sample, spared.past, 3.0).violators == found.violators


def test_what_is_no_longer_wanted_leaves_nothing() -> None:
    past = observe(wanted(share("a", "p")), {"GPU-0": seen()}, NO_PAST, 0.0).past
    ended = observe(wanted(), {}, past, 1.0)
    assert ended.past == {}
    assert ended.report == SharingReport(generation=1, time=1.0)
