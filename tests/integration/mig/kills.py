"""Calls that end with SIGKILL before one of their changes of a GPU or of a file."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator

from tests.fakes.nvml_calls import is_change, nvml_calls
from tests.file_changes import before_each_change
from tests.integration.mig.agreement import TwoGpus
from tests.integration.mig.operations import Operation, carry_out

_FAR = 500
_FEWEST = 10
"""Changes of the smallest operation here."""

processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload([__name__])


def kills(node: TwoGpus, operation: Operation, reset: Callable[[], None]) -> Iterator[int]:
    """Kills the operation before each of its changes, from the same state."""
    for kill_before in range(_FAR):
        reset()
        ended = _ended(node, operation, kill_before)
        yield kill_before
        if ended:
            assert kill_before > _FEWEST, "so little changes that nothing was tried"
            return
    raise AssertionError("the operation never ends")


def _ended(node: TwoGpus, operation: Operation, kill_before: int) -> bool:
    """Carries it out in a child that ends itself before its n-th change; whether it ended.

    An operation that is not killed has to succeed.
    """
    child = processes.Process(target=_child, args=(node, operation, kill_before))
    child.start()
    child.join()
    assert child.exitcode in (0, -signal.SIGKILL), f"{operation} ended with {child.exitcode}"
    return child.exitcode == 0


def _child(node: TwoGpus, operation: Operation, kill_before: int) -> None:
    remaining = kill_before

    def change() -> None:
        nonlocal remaining
        if remaining == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        remaining -= 1

    def at(_number: int, symbol: str) -> int | None:
        if is_change(symbol):
            change()
        return None

    before_each_change([node.folder, node.simulated.root / "dev"], change)
    with nvml_calls(node.simulated.directory, at):
        carry_out(node, operation)
