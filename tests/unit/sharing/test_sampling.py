"""When GPUs are sampled, when NVML is closed, and what is told of it."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from carina_dra.nvidia.nvml_failure import NvmlFailure
from carina_dra.nvidia.nvml_library import NvmlBusyError, NvmlCallError
from sharing.observation import GpuSample, Seen, Unseen
from sharing.sampling import Sampling, SamplingCounts
from sharing.use import GpuProcess
from tests.eventually import eventually
from tests.unit.sharing.samples import process, share, wanted


class Library:
    """NVML that is leased, discarded and closed."""

    def __init__(self) -> None:
        self.is_open = False
        self.discarded = 0
        self.replacement: object = None
        self.failing: Exception | None = None

    @contextmanager
    def lease(self) -> Iterator[object]:
        if self.failing is not None:
            raise self.failing
        self.is_open = True
        yield self

    def discard(self, session: object) -> None:
        assert session is self
        self.discarded += 1

    def close(self) -> None:
        self.is_open = False


class Processes:
    """What is seen of each GPU."""

    def __init__(self) -> None:
        self.sample: Callable[[str], GpuSample] = lambda _: Seen((process("train", 100),))
        self.reads = 0

    def read(self, uuid: str, session: object) -> GpuSample:
        assert isinstance(session, Library)
        self.reads += 1
        return self.sample(uuid)

    def forget(self) -> None:
        pass


class Watch:
    """Sampling in its thread."""

    def __init__(self, *, kill: bool = False) -> None:
        self.library, self.processes = Library(), Processes()
        self.told = 0
        self.started_again = threading.Event()
        self.at = 0.0
        self.ended: list[int] = []
        self.holds = False
        """Whether processes are kept from ending."""
        library: Any = self.library
        processes: Any = self.processes
        self.sampling = Sampling(
            library,
            processes,
            start_again=self.started_again.set,
            end=self._end if kill else None,
            now=time.time,
            clock=lambda: self.at,
        )
        threading.Thread(target=self.sampling.run, args=(self._tell,), daemon=True).start()

    def rest(self) -> None:
        """Has its thread, which does not end, do nothing any more."""
        self.sampling.want(wanted())

    def _tell(self) -> None:
        self.told += 1

    def _end(self, found: GpuProcess) -> str | None:
        if self.holds:
            self.ended.append(found.pid)
            return None
        if found.pid in self.ended:
            return "it has ended by itself"
        self.ended.append(found.pid)
        self.processes.sample = lambda _: Seen(())
        return None

    def reasons(self) -> list[str]:
        return [gpu.reason for gpu in self.sampling.report().unwatched]


@pytest.fixture
def watch() -> Iterator[Watch]:
    watch = Watch()
    yield watch
    watch.rest()


@pytest.fixture
def watchdog() -> Iterator[Watch]:
    """A watch that ends who has exceeded."""
    watch = Watch(kill=True)
    yield watch
    watch.rest()


def test_nothing_is_read_without_a_share(watch: Watch) -> None:
    watch.sampling.want(wanted(generation=7))
    eventually(lambda: watch.sampling.report().generation == 7)
    assert (watch.processes.reads, watch.library.is_open) == (0, False)


def test_a_shared_gpu_is_read_again_and_again_until_it_is_shared_no_more(watch: Watch) -> None:
    watch.sampling.want(wanted(share("train", "train")))
    eventually(lambda: watch.processes.reads > 2)
    assert [use.used_mib for use in watch.sampling.report().uses] == [100]

    watch.sampling.want(wanted(generation=2))
    eventually(lambda: not watch.library.is_open)
    eventually(lambda: watch.sampling.report().uses == ())


def test_what_does_not_change_is_told_once(watch: Watch) -> None:
    watch.sampling.want(wanted(share("train", "train")))
    eventually(lambda: watch.processes.reads > 3)
    assert watch.told == 1


def test_a_session_in_which_no_gpu_answers_is_discarded(watch: Watch) -> None:
    watch.processes.sample = lambda uuid: Unseen(f"{uuid} is lost")
    watch.sampling.want(wanted(share("train", "train")))
    eventually(lambda: watch.library.discarded)
    eventually(lambda: watch.reasons() == ["GPU-0 is lost"])


def test_a_session_in_which_a_gpu_answers_is_kept(watch: Watch) -> None:
    watch.processes.sample = lambda uuid: Unseen("lost") if uuid == "GPU-0" else Seen(())
    watch.sampling.want(wanted(share("a", "a"), share("b", "b", gpu="GPU-1")))
    eventually(lambda: watch.reasons() == ["lost"])
    assert watch.library.discarded == 0


@pytest.mark.parametrize(
    ("failing", "reason"),
    [
        (NvmlBusyError("nvmlInit does not return"), "nvmlInit does not return"),
        (NvmlCallError(NvmlFailure("nvmlInit", "NVML_ERROR_UNKNOWN")), "NVML_ERROR_UNKNOWN"),
        (ValueError("a bug"), "an error of carina-sharing"),
    ],
)
def test_nvml_that_cannot_be_used_is_told(watch: Watch, failing: Exception, reason: str) -> None:
    watch.library.failing = failing
    watch.sampling.want(wanted(share("train", "train")))
    eventually(lambda: any(reason in found for found in watch.reasons()))
    assert not watch.started_again.is_set()


def test_a_library_that_was_replaced_has_the_process_start_again(watch: Watch) -> None:
    watch.library.replacement = object()
    watch.library.failing = NvmlCallError(
        NvmlFailure("nvmlInit", "NVML_ERROR_LIB_RM_VERSION_MISMATCH")
    )
    watch.sampling.want(wanted(share("train", "train")))
    eventually(watch.started_again.is_set)


def test_a_call_that_does_not_return_is_told_meanwhile(watch: Watch) -> None:
    returned = threading.Event()

    def hang(_: str) -> GpuSample:
        returned.wait(30)
        return Seen(())

    watch.processes.sample = hang
    watch.sampling.want(wanted(share("train", "train")))
    eventually(lambda: watch.processes.reads)
    assert watch.reasons() == []
    watch.at = 60.0
    assert watch.reasons() == ["a call of the NVIDIA driver does not return"]
    returned.set()
    eventually(lambda: watch.reasons() == [])


def exceeds(watch: Watch, pid: int) -> None:
    watch.processes.sample = lambda _: Seen((process("train", 5000, pid=pid),))


def test_who_has_exceeded_is_ended_after_the_second_sample(watchdog: Watch) -> None:
    exceeds(watchdog, 7)
    watchdog.sampling.want(wanted(share("train", "train")))
    eventually(lambda: watchdog.ended)
    assert watchdog.processes.reads == 2
    eventually(lambda: [use.ended for use in watchdog.sampling.report().uses] == [1])
    assert watchdog.sampling.counts.ended == {"memory": 1, "mps": 0}


def test_that_a_process_was_ended_is_told_at_once(watchdog: Watch) -> None:
    watchdog.sampling.want(wanted(share("train", "train")))
    eventually(lambda: watchdog.told == 1)
    exceeds(watchdog, 7)
    eventually(lambda: watchdog.ended)
    eventually(lambda: watchdog.told == 2)


def test_nobody_is_ended_by_a_watchdog_that_warns(watch: Watch) -> None:
    exceeds(watch, 7)
    watch.sampling.want(wanted(share("train", "train")))
    eventually(lambda: watch.processes.reads > 3)
    report = watch.sampling.report()
    assert (report.uses[0].exceeded, report.uses[0].ended) == (1, 0)
    assert not report.offers.ends_violators


def test_who_cannot_be_ended_is_tried_again_and_not_counted(watchdog: Watch) -> None:
    watchdog.ended = [7]
    exceeds(watchdog, 7)
    watchdog.sampling.want(wanted(share("train", "train")))
    eventually(lambda: watchdog.processes.reads > 3)
    assert [use.ended for use in watchdog.sampling.report().uses] == [0]


def test_who_is_kept_from_ending_is_ended_again_and_counted_once(watchdog: Watch) -> None:
    """Such as by a tracer, which is ended with it."""
    watchdog.holds = True
    exceeds(watchdog, 7)
    watchdog.sampling.want(wanted(share("train", "train")))
    eventually(lambda: len(watchdog.ended) >= 3)
    assert set(watchdog.ended) == {7}
    assert [use.ended for use in watchdog.sampling.report().uses] == [1]


def test_it_says_what_it_does_also_while_a_call_hangs(watchdog: Watch) -> None:
    watchdog.sampling.want(wanted(share("train", "train")))
    eventually(lambda: watchdog.sampling.report().uses)
    returned = threading.Event()

    def hang(_: str) -> GpuSample:
        returned.wait(30)
        return Seen(())

    watchdog.processes.sample = hang
    reads = watchdog.processes.reads
    eventually(lambda: watchdog.processes.reads > reads)
    watchdog.at = 60.0
    report = watchdog.sampling.report()
    assert report.unwatched
    assert report.offers.ends_violators
    assert watchdog.sampling.counts.hangs
    returned.set()


def test_samples_are_counted_while_a_gpu_is_shared(watch: Watch) -> None:
    watch.sampling.want(wanted(generation=2))
    eventually(lambda: watch.sampling.report().generation == 2)
    assert watch.sampling.counts == SamplingCounts(0, {"memory": 0, "mps": 0}, hangs=False)
    watch.sampling.want(wanted(share("train", "train")))
    eventually(lambda: watch.sampling.counts.samples == 2)
