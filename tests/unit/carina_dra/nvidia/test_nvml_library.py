"""Who may use NVML when: leases on the library, and when it is opened again."""

import random
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic

import pynvml
import pytest

from carina_dra.nvidia.nvml_failure import NvmlFailure
from carina_dra.nvidia.nvml_library import (
    NvmlBusyError,
    NvmlCallError,
    NvmlLibrary,
    NvmlSession,
    call,
    optional_call,
)
from kubelet_plugin.host import HostPaths

LONG = 30.0
SHORT = 0.05
"""Seconds: within the one a thread gets where it can, within the other it does not."""


class Driver:
    """Stands in for nvmlInit and nvmlShutdown, and for the kernel's list of GPUs."""

    def __init__(self, root: Path) -> None:
        self.gpus = root / "proc/driver/nvidia/gpus"
        self.plug("0000:1b:00.0")
        self.calls: list[str] = []
        self.fails: list[int] = []
        self.answers = threading.Event()
        self.answers.set()
        self.in_use = 0

    def plug(self, address: str) -> None:
        (self.gpus / address).mkdir(parents=True)

    def nvmlInit(self) -> None:  # noqa: N802 - its name is that of the failure
        assert self.calls.count("init") == self.calls.count("shutdown")
        self.answers.wait(LONG)
        if self.fails:
            raise pynvml.NVMLError(self.fails.pop())
        self.calls.append("init")

    def nvmlShutdown(self) -> None:  # noqa: N802
        assert self.calls.count("init") == self.calls.count("shutdown") + 1
        assert self.in_use == 0, "shut down under a user"
        self.calls.append("shutdown")


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Driver:
    driver = Driver(tmp_path)
    monkeypatch.setattr(pynvml, "nvmlInit", driver.nvmlInit)
    monkeypatch.setattr(pynvml, "nvmlShutdown", driver.nvmlShutdown)
    monkeypatch.setattr(pynvml, "nvmlLib", object())
    return driver


@pytest.fixture
def library(driver: Driver, tmp_path: Path) -> NvmlLibrary:
    return NvmlLibrary(HostPaths(tmp_path).gpu_addresses, patience=LONG)


@pytest.fixture
def impatient(driver: Driver, tmp_path: Path) -> NvmlLibrary:
    return NvmlLibrary(HostPaths(tmp_path).gpu_addresses, patience=SHORT)


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as executor:
        yield executor


@contextmanager
def held(library: NvmlLibrary, threads: ThreadPoolExecutor) -> Iterator[NvmlSession]:
    """Another thread holds a lease for the length of the block."""
    has, goes = threading.Event(), threading.Event()
    sessions: list[NvmlSession] = []

    def hold() -> None:
        with library.lease() as session:
            sessions.append(session)
            has.set()
            assert goes.wait(LONG)

    holder = threads.submit(hold)
    assert has.wait(LONG)
    try:
        yield sessions[0]
    finally:
        goes.set()
        holder.result(LONG)


def leased(library: NvmlLibrary) -> NvmlSession:
    """The session of a lease that is over."""
    with library.lease() as session:
        return session


def waits(future: Future[NvmlSession]) -> bool:
    try:
        future.result(SHORT)
    except TimeoutError:
        return True
    return False


# --- when nothing hangs ---


def test_it_is_opened_for_the_first_lease_and_stays_open(
    library: NvmlLibrary, driver: Driver
) -> None:
    assert driver.calls == []
    assert leased(library) is leased(library)
    assert driver.calls == ["init"]


def test_several_threads_use_it_at_a_time(
    library: NvmlLibrary, driver: Driver, threads: ThreadPoolExecutor
) -> None:
    with held(library, threads) as one, held(library, threads) as two:
        assert one is two is leased(library)
    assert driver.calls == ["init"]


def test_it_is_opened_again_when_the_kernel_lists_other_gpus(
    library: NvmlLibrary, driver: Driver
) -> None:
    before = leased(library)
    driver.plug("0000:43:00.0")
    assert leased(library) is not before
    assert driver.calls == ["init", "shutdown", "init"]


def test_opening_again_waits_until_nobody_uses_it(
    library: NvmlLibrary, driver: Driver, threads: ThreadPoolExecutor
) -> None:
    with held(library, threads) as before:
        driver.plug("0000:43:00.0")
        first, second = threads.submit(leased, library), threads.submit(leased, library)
        assert waits(first)
        assert waits(second)
        assert driver.calls == ["init"]
    assert first.result(LONG) is second.result(LONG) is not before
    assert driver.calls == ["init", "shutdown", "init"]


def test_a_discarded_session_ends_with_its_last_lease(
    library: NvmlLibrary, driver: Driver, threads: ThreadPoolExecutor
) -> None:
    with held(library, threads), library.lease() as session:
        library.discard(session)
        assert driver.calls == ["init"]
    assert driver.calls == ["init", "shutdown"]
    assert leased(library) is not session


def test_discarding_a_session_that_is_over_does_nothing(
    library: NvmlLibrary, driver: Driver
) -> None:
    before = leased(library)
    library.close()
    now = leased(library)
    library.discard(before)
    assert leased(library) is now


def test_a_user_that_fails_gives_its_lease_back(library: NvmlLibrary, driver: Driver) -> None:
    with pytest.raises(ZeroDivisionError), library.lease():
        raise ZeroDivisionError
    driver.plug("0000:43:00.0")
    leased(library)
    assert driver.calls == ["init", "shutdown", "init"]


def test_what_cannot_be_opened_is_tried_again_by_the_next_user(
    library: NvmlLibrary, driver: Driver
) -> None:
    driver.fails = [pynvml.NVML_ERROR_DRIVER_NOT_LOADED]
    with pytest.raises(NvmlCallError) as caught:
        leased(library)
    assert caught.value.failure == NvmlFailure("nvmlInit", "NVML_ERROR_DRIVER_NOT_LOADED")
    leased(library)
    assert driver.calls == ["init"]


def test_closing_waits_until_nobody_uses_it(
    library: NvmlLibrary, driver: Driver, threads: ThreadPoolExecutor
) -> None:
    with held(library, threads):
        closing = threads.submit(library.close)
        assert driver.calls == ["init"]
    closing.result(LONG)
    assert driver.calls == ["init", "shutdown"]
    library.close()
    assert driver.calls == ["init", "shutdown"]


def test_without_the_kernels_list_it_is_opened_again_whenever_nobody_uses_it(
    driver: Driver, tmp_path: Path, threads: ThreadPoolExecutor
) -> None:
    library = NvmlLibrary(HostPaths(tmp_path / "nowhere").gpu_addresses, patience=LONG)
    assert leased(library) is not leased(library)
    with held(library, threads) as session:
        assert leased(library) is session


# --- calls that hang ---


def test_a_hanging_call_leaves_others_the_session_as_it_is(
    impatient: NvmlLibrary, driver: Driver, threads: ThreadPoolExecutor
) -> None:
    with held(impatient, threads) as session:
        driver.plug("0000:43:00.0")
        assert leased(impatient) is session
    assert leased(impatient) is not session
    assert driver.calls == ["init", "shutdown", "init"]


def test_one_user_waits_in_vain_and_the_next_ones_do_not_wait(
    driver: Driver, tmp_path: Path, threads: ThreadPoolExecutor
) -> None:
    library = NvmlLibrary(HostPaths(tmp_path).gpu_addresses, patience=1.0)
    with held(library, threads) as session:
        driver.plug("0000:43:00.0")
        begun = monotonic()
        assert leased(library) is session
        waited = monotonic() - begun
        assert waited >= 1.0
        for _ in range(19):
            assert leased(library) is session
        assert monotonic() - begun < 5 * waited


def test_after_one_hanging_call_has_returned_the_others_are_waited_for(
    driver: Driver, tmp_path: Path, threads: ThreadPoolExecutor
) -> None:
    library = NvmlLibrary(HostPaths(tmp_path).gpu_addresses, patience=0.5)
    with held(library, threads) as session, ExitStack() as second:
        second.enter_context(held(library, threads))
        driver.plug("0000:43:00.0")
        assert leased(library) is session
        second.close()
        begun = monotonic()
        assert leased(library) is session
        assert monotonic() - begun >= 0.5


def test_while_opening_hangs_others_get_an_error(
    impatient: NvmlLibrary, driver: Driver, threads: ThreadPoolExecutor
) -> None:
    driver.answers.clear()
    opening = threads.submit(leased, impatient)
    assert waits(opening)
    for _ in range(2):
        with pytest.raises(NvmlBusyError, match="nvmlInit or nvmlShutdown has not returned"):
            leased(impatient)
    driver.answers.set()
    assert opening.result(LONG) is leased(impatient)


def test_a_hanging_call_keeps_closing_from_shutting_down(
    impatient: NvmlLibrary, driver: Driver, threads: ThreadPoolExecutor
) -> None:
    with held(impatient, threads):
        impatient.close()
        assert driver.calls == ["init"]


# --- many users ---


def test_it_is_never_shut_down_under_a_user(
    library: NvmlLibrary, driver: Driver, threads: ThreadPoolExecutor
) -> None:
    counting = threading.Lock()

    def use(seed: int) -> None:
        chance = random.Random(seed)
        for step in range(150):
            with library.lease() as session:
                with counting:
                    driver.in_use += 1
                assert driver.calls[-1] == "init"
                if chance.randrange(8) == 0:
                    driver.plug(f"0000:{seed:02x}:{step:02x}.0")
                elif chance.randrange(8) == 0:
                    library.discard(session)
                assert driver.calls[-1] == "init"
                with counting:
                    driver.in_use -= 1
            if chance.randrange(20) == 0:
                library.close()

    for user in [threads.submit(use, seed) for seed in range(6)]:
        user.result(LONG)
    library.close()
    assert driver.calls.count("init") == driver.calls.count("shutdown") > 20


# --- calls ---


def test_a_failed_call_names_its_function_and_its_code() -> None:
    def nvmlDeviceGetName() -> None:  # noqa: N802
        raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)

    with pytest.raises(NvmlCallError, match=r"nvmlDeviceGetName.*NVML_ERROR_GPU_IS_LOST"):
        call(nvmlDeviceGetName)
    with pytest.raises(NvmlCallError):
        optional_call(nvmlDeviceGetName)


@pytest.mark.parametrize(
    "code",
    [
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
    ],
)
def test_what_a_driver_does_not_support_is_none(code: int) -> None:
    def nvmlDeviceGetName() -> None:  # noqa: N802
        raise pynvml.NVMLError(code)

    assert optional_call(nvmlDeviceGetName) is None


def test_a_function_that_is_missing_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    def nvmlOnlyInThisTest() -> None:  # noqa: N802
        raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)

    caplog.set_level("INFO")
    for _ in range(3):
        optional_call(nvmlOnlyInThisTest)
    assert len(caplog.records) == 1
