"""Which process of a use is to be ended."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carina_dra.sharing.message import WantedShares
from sharing.exceeded import limit_mib
from sharing.observation import NO_PAST, GpuSample, Past, Seen, Unseen, observe, with_ended
from sharing.use import GpuProcess
from sharing.violators import FREEING, STUCK, Violator, pods_under_mps
from tests.unit.sharing.samples import process, share, wanted, wanted_daemon


@dataclass
class Watch:
    """Samples of GPU-0, one after the other, of which each violator is ended."""

    asked: WantedShares
    past: Past = field(default_factory=lambda: NO_PAST)
    now: float = 0.0

    def sample(self, *processes: GpuProcess) -> list[int]:
        """The PIDs that are ended after a sample."""
        return [violator.process.pid for violator in self.look(Seen(processes))]

    def look(self, sample: GpuSample) -> Sequence[Violator]:
        self.now += 1
        found = observe(self.asked, {"GPU-0": sample}, self.past, self.now)
        self.past = with_ended(found, found.violators).past
        return found.violators


def train() -> Watch:
    return Watch(wanted(share("train", "train"), share("other", "other")))


def much(pid: int = 1, memory_mib: int = 5000) -> GpuProcess:
    return process("train", memory_mib, pid=pid)


def test_who_is_above_the_limit_in_two_samples_in_a_row_loses_a_process() -> None:
    watch = train()
    assert [watch.sample(much()), watch.sample(much())] == [[], [1]]


def test_one_sample_says_nothing() -> None:
    watch = train()
    assert [watch.sample(*seen) for seen in ([much()], [], [much()])] == [[], [], []]


def test_the_margin_is_that_of_the_report() -> None:
    watch, limit = train(), limit_mib(1000)
    assert [watch.sample(much(memory_mib=limit)) for _ in range(5)] == [[]] * 5
    assert [watch.sample(much(memory_mib=limit + 1)) for _ in range(2)] == [[], [1]]


def test_between_what_was_given_and_the_limit_nobody_is_ended_though_it_has_exceeded() -> None:
    watch = train()
    watch.sample(much(1))
    watch.sample(much(1))
    assert [watch.sample(much(2, 1010)) for _ in range(5)] == [[]] * 5


def test_samples_that_are_taken_at_the_same_time_are_one() -> None:
    """A neighbour whose claims come and go must not make a moment into two samples."""
    watch = train()
    ended = []
    for now in (10.0, 10.0, 10.1, 10.19, 10.21):
        watch.now = now - 1
        ended.append(watch.sample(much()))
    assert ended == [[], [], [], [], [1]]


def test_a_clock_that_was_set_back_keeps_nobody_from_being_ended() -> None:
    watch = train()
    watch.now = 1e9
    watch.sample(much())
    watch.now = 0
    assert watch.sample(much()) == [1]


def test_samples_with_none_between_them_are_not_in_a_row() -> None:
    watch = train()
    watch.sample(much())
    watch.look(Unseen("it does not answer"))
    assert [watch.sample(much()), watch.sample(much())] == [[], [1]]


def test_it_is_the_process_with_the_most_memory() -> None:
    watch = train()
    three = (much(1, 100), much(2, 900), much(3, 800))
    assert [watch.sample(*three), watch.sample(*three)] == [[], [2]]


def test_of_several_with_as_much_it_is_the_one_that_began_last() -> None:
    watch = train()
    old, young = process("train", 900, pid=9, started=5), process("train", 900, pid=2, started=6)
    assert [watch.sample(old, young), watch.sample(young, old)] == [[], [2]]


def test_processes_of_neighbours_and_of_the_node_are_never_ended() -> None:
    watch = train()
    others = (process("other", 900, pid=2), process("stranger", 9000, pid=3))
    node = process(None, 9000, pid=4)
    assert [watch.sample(much(), *others, node) for _ in range(2)] == [[], [1]]


def test_pods_that_share_a_claim_are_one() -> None:
    watch = Watch(wanted(share("both", "p", "q")))
    two = (process("p", 500, pid=1), process("q", 600, pid=2))
    assert [watch.sample(*two), watch.sample(*two)] == [[], [2]]


def test_each_use_loses_its_own() -> None:
    watch = train()
    both = (much(1), process("other", 9000, pid=2))
    watch.sample(*both)
    assert sorted(watch.sample(*both)) == [1, 2]


def test_as_many_are_ended_as_have_to_be() -> None:
    watch = train()
    many = (*(much(pid, 900) for pid in range(1, 9)), much(9, 10))
    assert [watch.sample(*many), sorted(watch.sample(*many))] == [[], [2, 3, 4, 5, 6, 7, 8]]


def test_who_takes_again_what_was_freed_is_ended_at_once() -> None:
    watch = train()
    assert [watch.sample(much(1)), watch.sample(much(1))] == [[], [1]]
    assert [watch.sample(much(pid)) for pid in (2, 3, 4)] == [[2], [3], [4]]


def test_once_a_use_is_within_its_limit_it_takes_two_samples_again() -> None:
    watch = train()
    assert [watch.sample(much(1)), watch.sample(much(1)), watch.sample()] == [[], [1], []]
    assert [watch.sample(much(2)), watch.sample(much(2))] == [[], [2]]


def test_memory_that_is_being_freed_ends_no_other() -> None:
    watch = train()
    two = (much(1, 5000), much(2, 900))
    watch.sample(*two)
    assert watch.sample(*two) == [1]
    assert [watch.sample(*two) for _ in range(STUCK)] == [[]] * STUCK


def test_that_the_use_of_one_waits_keeps_no_other() -> None:
    watch = train()
    own, neighbour = much(1), process("other", 9000, pid=2)
    watch.sample(own)
    assert watch.sample(own, neighbour) == [1]
    assert watch.sample(own, neighbour) == [2]


def test_the_driver_has_a_while_to_free_what_an_ended_process_had() -> None:
    watch = train()
    watch.sample(much(1), much(2, 900))
    assert watch.sample(much(1), much(2, 900)) == [1]
    two = (replace(much(1), runs=False), much(2, 900))
    assert [watch.sample(*two) for _ in range(FREEING)] == [[]] * FREEING


def test_who_is_kept_from_ending_is_one_that_runs() -> None:
    """Also where a sample is taken at the same time as the one before."""
    watch = train()
    watch.sample(much(1))
    assert watch.sample(much(1)) == [1]
    for runs, kept in ((True, [1]), (False, [])):
        last = Seen((replace(much(1), runs=runs),))
        found = observe(watch.asked, {"GPU-0": last}, watch.past, watch.now)
        assert [process.pid for process in found.held] == kept


def test_who_keeps_what_a_process_had_is_ended_in_its_place() -> None:
    """Such as those that it has forked. It may have ended by itself."""
    watch = train()
    two = (replace(much(1), runs=False), much(2, 6000))
    fits = (two[0], much(2, 900))
    assert [watch.sample(*fits) for _ in range(FREEING + 1)] == [[]] * (FREEING + 1)
    assert watch.sample(*two) == [1, 2]
    assert [watch.sample(*fits) for _ in range(FREEING)] == [[]] * FREEING
    assert [watch.sample(*fits), watch.sample(*fits)] == [[], [1]]


def test_a_process_that_has_ended_and_has_nothing_keeps_no_other() -> None:
    watch = train()
    two = (replace(process("train", None), runs=False), much(2))
    for _ in range(FREEING):
        watch.sample(two[0])
    assert [watch.sample(*two), watch.sample(*two)] == [[], [2]]


def test_one_that_never_ends_is_not_waited_for_without_end() -> None:
    watch = train()
    watch.sample(much(1))
    assert watch.sample(much(1)) == [1]
    two = (much(1), much(2, 900))
    assert [watch.sample(*two) for _ in range(STUCK)] == [[]] * STUCK
    assert [watch.sample(*two), watch.sample(*two)] == [[], [2]]
    assert [watch.sample(*two) for _ in range(3)] == [[]] * 3


def test_one_that_ends_late_is_waited_for_until_its_memory_is_free() -> None:
    watch = train()
    watch.sample(much(1))
    assert watch.sample(much(1)) == [1]
    for _ in range(STUCK - 1):
        watch.sample(much(1), much(2, 900))
    late = (replace(much(1), runs=False), much(2, 900))
    assert [watch.sample(*late) for _ in range(FREEING)] == [[]] * FREEING


def test_a_process_that_has_ended_is_not_ended_again() -> None:
    watch = train()
    dead = replace(much(), runs=False)
    assert [watch.sample(dead) for _ in range(5)] == [[]] * 5


def test_a_process_that_has_the_pid_of_one_that_was_ended_is_another() -> None:
    watch = train()
    watch.sample(much())
    assert watch.sample(much()) == [1]
    assert watch.sample(replace(much(), started=99)) == [1]


@pytest.mark.parametrize("pod", [None, "stranger"])
def test_a_process_is_waited_for_wherever_it_is(pod: str | None) -> None:
    watch = train()
    watch.sample(much(1), much(2, 900))
    watch.sample(much(1), much(2, 900))
    moved = process(pod, 5000, pid=1)
    assert [watch.sample(moved, much(2, 900)) for _ in range(9)] == [[]] * 9


def test_a_process_without_a_figure_is_not_ended_for_its_memory() -> None:
    watch = train()
    two = (process("train", None, pid=1), much(2))
    assert [watch.sample(*two), watch.sample(*two)] == [[], [2]]


def test_who_has_no_memory_is_not_ended_for_that_of_a_process_that_has_ended() -> None:
    watch = train()
    two = (replace(much(1), runs=False), process("train", None, pid=2))
    assert [watch.sample(*two) for _ in range(5)] == [[]] * 5


def test_uses_that_become_one_wait_for_all_processes_of_theirs() -> None:
    watch = Watch(wanted(share("train", "train"), share("other", "other")))
    gone, there = much(1), process("other", 5000, pid=2)
    watch.sample(gone, there)
    assert sorted(watch.sample(gone, there)) == [1, 2]
    watch.asked = wanted(share("train", "train"), share("other", "train", "other"))
    rest = (there, much(3, 900))
    assert [watch.sample(*rest) for _ in range(3)] == [[]] * 3


def test_a_use_that_becomes_another_goes_on_with_what_it_was() -> None:
    """Else a tenant whose claims come and go would never be ended."""
    watch = train()
    watch.sample(much(1), much(2, 900))
    watch.asked = wanted(share("train", "train"), share("more", "train"))
    assert watch.sample(much(1), much(2, 900)) == [1]
    watch.asked = wanted(share("train", "train"))
    assert [watch.sample(much(1), much(2, 900)) for _ in range(3)] == [[]] * 3


def test_what_a_pod_has_of_other_gpus_does_not_count() -> None:
    asked = wanted(share("a", "p"), share("b", "p", gpu="GPU-1"))
    samples = {
        "GPU-0": Seen((process("p", 900, pid=1),)),
        "GPU-1": Seen((process("p", 5000, pid=2), process("p", 10, pid=1))),
    }
    found = observe(asked, samples, observe(asked, samples, NO_PAST, 0.0).past, 1.0)
    assert [(gone.use[0], gone.process.pid) for gone in found.violators] == [("GPU-1", 2)]


# --- outside of MPS ---


def by_mps() -> Watch:
    asked = wanted(
        share("train", "train"), share("other", "other"), daemons=(wanted_daemon("train"),)
    )
    return Watch(asked)


def outside(pid: int = 1, memory_mib: int | None = 10, pod: str = "train") -> GpuProcess:
    return process(pod, memory_mib, pid=pid, outside_mps=True)


def test_who_computes_outside_of_mps_in_two_samples_in_a_row_is_ended() -> None:
    watch = by_mps()
    assert watch.sample(outside(), much(2, 900)) == []
    (found,) = watch.look(Seen((outside(), much(2, 900))))
    assert (found.process.pid, found.why) == (1, "mps")


def test_it_has_to_be_the_same_process() -> None:
    watch = by_mps()
    assert [watch.sample(outside(pid)) for pid in (1, 2, 1, 2)] == [[]] * 4


def test_nobody_is_ended_for_it_by_a_daemon_that_is_wanted_no_more() -> None:
    watch = by_mps()
    watch.asked = watch.asked.model_copy(update={"daemons": ()})
    assert [watch.sample(outside()) for _ in range(5)] == [[]] * 5


def test_nor_in_a_pod_without_a_daemon() -> None:
    watch = by_mps()
    assert [watch.sample(outside(pod="other")) for _ in range(5)] == [[]] * 5


def test_a_pod_with_another_claim_on_the_gpu_can_compute_outside() -> None:
    watch = by_mps()
    watch.asked = watch.asked.model_copy(
        update={"shares": (*watch.asked.shares, share("plain", "train"))}
    )
    assert [watch.sample(outside()) for _ in range(5)] == [[]] * 5


def test_nor_in_a_pod_whose_claim_has_a_share_without_a_daemon() -> None:
    watch = by_mps()
    own, other = watch.asked.shares
    more = own.model_copy(update={"memory_mib": 1500})
    watch.asked = watch.asked.model_copy(update={"shares": (more, other)})
    assert [watch.sample(outside()) for _ in range(5)] == [[]] * 5


def test_a_process_without_a_figure_is_ended_for_it() -> None:
    watch = by_mps()
    assert [watch.sample(outside(1, None)), watch.sample(outside(1, None))] == [[], [1]]


def test_all_that_compute_outside_are_ended() -> None:
    watch = by_mps()
    two = (outside(1, None), outside(2, 10))
    assert [watch.sample(*two), sorted(watch.sample(*two))] == [[], [1, 2]]


def test_nobody_is_ended_for_it_where_the_plugin_does_not_say_which_daemons_it_wants() -> None:
    watch = by_mps()
    watch.asked = watch.asked.model_copy(update={"daemons": None})
    assert [watch.sample(outside()) for _ in range(5)] == [[]] * 5


def test_who_has_exceeded_comes_first() -> None:
    watch = by_mps()
    two = (outside(1), much(2))
    watch.sample(*two)
    found = watch.look(Seen(two))
    assert [(gone.process.pid, gone.why) for gone in found] == [(2, "memory"), (1, "mps")]
    assert watch.sample(*two) == []


def test_the_daemon_is_that_of_the_gpu() -> None:
    asked = wanted(share("train", "train"), daemons=(wanted_daemon("train", "GPU-1"),))
    assert pods_under_mps(asked) == frozenset()


# --- whatever happens ---

_PODS = ("p", "q", "r", "stranger", None)
_SHARES = (share("a", "p"), share("b", "q", "r"))
_PROCESSES = st.builds(
    process,
    st.sampled_from(_PODS),
    st.one_of(st.none(), st.sampled_from([0, 10, 600, 1064, 1065, 5000])),
    pid=st.integers(1, 4),
    started=st.integers(1, 2),
    runs=st.booleans(),
    outside_mps=st.booleans(),
)
_SAMPLES = st.lists(
    st.one_of(
        st.lists(_PROCESSES, max_size=5, unique_by=lambda found: found.pid).map(
            lambda found: Seen(tuple(found))
        ),
        st.just(Unseen("it does not answer")),
    ),
    max_size=12,
)


@given(_SAMPLES, st.lists(st.booleans(), min_size=40, max_size=40))
def test_whatever_happens_only_the_right_process_is_ended(
    samples: list[GpuSample], succeeds: list[bool]
) -> None:
    asked = wanted(*_SHARES, daemons=(wanted_daemon("b"),))
    past: Past = NO_PAST
    before: GpuSample = Unseen("")
    ended: set[tuple[int, int]] = set()
    results = iter(succeeds)
    for now, sample in enumerate(samples):
        found = observe(asked, {"GPU-0": sample}, past, float(now))
        for gone in found.violators:
            assert isinstance(sample, Seen)
            assert gone.process in sample.processes
            assert gone.process.runs
            pods = {"a": {"p-uid"}, "b": {"q-uid", "r-uid"}}[gone.use[1][0].removesuffix("-uid")]
            assert gone.process.pod_uid in pods
            assert gone.process.pod_uid == gone.pod.uid
            assert gone.process.identity not in ended
            assert isinstance(before, Seen)
            if gone.why == "memory":
                assert _used(sample, pods) > limit_mib(1000)
                assert _used(before, pods) > limit_mib(1000)
                spared = [
                    known.memory or 0
                    for known in sample.processes
                    if known.pod_uid in pods and known.runs and known.identity not in ended
                    if known not in [other.process for other in found.violators]
                ]
                assert (gone.process.memory or 0) >= max(spared, default=0)
            else:
                assert gone.use[1] == ("b-uid",)
                assert gone.process.outside_mps
                assert gone.process.identity in {known.identity for known in before.processes}
        assert len({gone.process.identity for gone in found.violators}) == len(found.violators)
        done = {gone: next(results) for gone in found.violators}
        there = sample.processes if isinstance(sample, Seen) else ()
        if isinstance(sample, Seen):
            ended &= {known.identity for known in there}
        ended |= {gone.process.identity for gone in done if done[gone]}
        past = with_ended(found, [gone for gone in done if done[gone]]).past
        before = sample


def _used(sample: Seen, pods: set[str]) -> int:
    return sum((known.memory or 0) for known in sample.processes if known.pod_uid in pods) // 2**20
