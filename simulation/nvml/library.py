"""The simulated libnvidia-ml.so.1: an object with a method for each C function it implements.

Every call hangs while the node's state says so, returns the code of a fault if one applies, and
otherwise runs the function on the state as it was when the call began. As with ctypes, a function
that is not implemented or newer than the simulated driver is not an attribute.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import pynvml

from simulation.nvml import host_tree
from simulation.nvml.c_arguments import Handle, HandleType, unpack
from simulation.nvml.hardware import HARDWARE, GpuModel, Hardware, Slot
from simulation.nvml.state import Fault, GpuInstance, GpuState, NodeState, StateFile

__all__ = ["Attached", "Session", "SimulatedLibrary", "answer", "function", "in_use_file"]

_POLL_SECONDS = 0.01

CFunction: TypeAlias = Callable[..., None]
_FUNCTIONS: dict[str, CFunction] = {}


class AnswerError(Exception):
    """A call returns a code other than NVML_SUCCESS."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


def answer(code: int) -> NoReturn:
    """Makes the call return a code."""
    raise AnswerError(code)


def function(implementation: CFunction) -> CFunction:
    """Registers a Python function as the C function of its name; it gets the session first."""
    _FUNCTIONS[implementation.__name__] = implementation
    return implementation


@dataclass(frozen=True, slots=True)
class Attached:
    """A GPU on the bus: its slot, model and state during a call."""

    slot: Slot
    model: GpuModel
    state: GpuState


class _OfCall(threading.local):
    """What the call in progress in this thread has found; None between calls."""

    state: NodeState | None = None


class Session:
    """The library's state in one process between nvmlInit and nvmlShutdown."""

    def __init__(self, directory: Path) -> None:
        self._file = StateFile(directory)
        self._of_call = _OfCall()
        self.directory = directory
        self.hardware: Hardware = HARDWARE.validate_json((directory / "hardware.json").read_bytes())
        self.driver_version = self.state.driver_version
        """The version of the library: of the driver that was installed when it was loaded."""
        self.number = 0
        self.references = 0
        self.minors: tuple[int, ...] = ()
        """Minor numbers of the GPUs present at nvmlInit, in NVML's order: by PCI address."""
        self.event_sets: dict[int, Any] = {}
        self._open_file: int | None = None

    @property
    def driver_branch(self) -> int:
        """The first number of the driver's version: 550 of 550.163.01."""
        return int(self.driver_version.partition(".")[0])

    @property
    def state(self) -> NodeState:
        """The node's state as the call in progress knows it; between calls, the current state."""
        return self._of_call.state or self._file.read()

    @contextmanager
    def call(self) -> Iterator[None]:
        """Within the context, `state` is what it was at the beginning, or at the last `look`."""
        self.look()
        try:
            yield
        finally:
            self._of_call.state = None

    def look(self) -> NodeState:
        """The node's current state, which is then that of the call in progress."""
        self._of_call.state = self._file.read()
        return self._of_call.state

    def update(
        self,
        change: Callable[[NodeState], NodeState],
        written: Callable[[NodeState], object] = lambda _: None,
    ) -> None:
        """Changes the node's state, see `StateFile.update`, during a call."""
        self._of_call.state = self._file.update(change, written)

    def begin(self) -> None:
        """nvmlInit: finds the GPUs that are present."""
        if self.state.driver_version != self.driver_version:
            answer(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)
        self.references += 1
        if self.references == 1:
            self.number += 1
            self._open_file = os.open(in_use_file(self.directory), os.O_RDONLY | os.O_CREAT, 0o644)
            os.set_inheritable(self._open_file, True)  # noqa: FBT003 - its signature
            gpus = self.state.gpus
            slots = [s for s in self.hardware.gpus if gpus[s.minor].presence != "unplugged"]
            slots.sort(key=lambda slot: (len(slot.pci), slot.pci))
            self.minors = tuple(slot.minor for slot in slots)

    def end(self) -> None:
        """nvmlShutdown."""
        if self.references == 0:
            answer(pynvml.NVML_ERROR_UNINITIALIZED)
        self.references -= 1
        if self.references == 0:
            self.event_sets.clear()
        if self.references == 0 and self._open_file is not None:
            os.close(self._open_file)
            self._open_file = None

    def handle(self, type_: HandleType, minor: int, instance: int = 0, compute: int = 0) -> Handle:
        """A handle that is valid until the session ends."""
        return Handle(type_, self.number, minor, instance, compute)

    def gpu(self, minor: int) -> Attached:
        """A GPU of the session. Returns GPU_IS_LOST for one that is no longer on the bus."""
        if minor not in self.minors:
            answer(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        state = self.state.gpus[minor]
        if state.presence != "attached":
            answer(pynvml.NVML_ERROR_GPU_IS_LOST)
        return Attached(self.hardware.slot(minor), self.hardware.model(minor), state)

    def resolve(self, argument: Any, *types: HandleType) -> Handle:
        """The handle in an argument; it must have one of these types and be of this session."""
        handle = unpack(argument)
        if handle is None or handle.type not in types or handle.session != self.number & 0xFFFF:
            answer(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return handle

    def device(self, argument: Any) -> Attached:
        """The GPU of a device handle; for a MIG device, its parent."""
        return self.gpu(self.resolve(argument, "device", "mig device").minor)

    def whole_device(self, argument: Any) -> Attached:
        """The GPU of a device handle, which must not be that of a MIG device."""
        return self.gpu(self.resolve(argument, "device").minor)

    def instance(self, handle: Handle) -> GpuInstance:
        """The GPU instance that a handle names, if it still exists."""
        for instance in self.gpu(handle.minor).state.instances:
            if instance.id == handle.gpu_instance:
                return instance
        answer(pynvml.NVML_ERROR_NOT_FOUND)

    def write_capabilities(self, state: NodeState) -> None:
        """Writes the capability files of the MIG instances in /proc. The caller holds the lock."""
        host_tree.write_capabilities(self.directory, self.hardware, state)

    def change_gpu(self, minor: int, change: Callable[[GpuState], GpuState]) -> None:
        """Changes a GPU's state; `change` may end the call with `answer` instead."""
        self.update(lambda node: node.with_gpu(minor, change(node.gpus[minor])))


def in_use_file(directory: Path) -> Path:
    """Returns the file that a process has open during a session, as it has those of /dev/nvidia*.

    What executes another program keeps it, if it does not see to it.
    """
    return directory / "in-use"


class SimulatedLibrary:
    """Replaces `ctypes.CDLL("libnvidia-ml.so.1")` in pynvml."""

    def __init__(self, directory: Path) -> None:
        self._session = Session(directory)

    def __getattr__(self, symbol: str) -> Callable[..., int]:
        implementation = _FUNCTIONS.get(symbol)
        if implementation is None or self._is_missing(symbol):
            raise AttributeError(f"undefined symbol: {symbol}")
        return partial(self._call, symbol, implementation)

    def _is_missing(self, symbol: str) -> bool:
        session = self._session
        return symbol in session.hardware.missing_symbols or symbol in session.state.missing

    def _call(self, symbol: str, implementation: CFunction, *arguments: Any) -> int:
        session = self._session
        with session.call():
            while symbol in session.state.hanging:
                time.sleep(_POLL_SECONDS)
                session.look()
            try:
                # pynvml keeps function pointers: a symbol that goes missing later has to answer so.
                if symbol in session.state.missing:
                    answer(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
                self._fail(symbol, arguments)
                if symbol not in _WITHOUT_DRIVER:
                    if session.references == 0:
                        answer(pynvml.NVML_ERROR_UNINITIALIZED)
                    if session.state.driver != "loaded":
                        answer(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
                    if session.state.driver_version != session.driver_version:
                        answer(pynvml.NVML_ERROR_UNKNOWN)
                implementation(session, *arguments)
            except AnswerError as error:
                return error.code
        return int(pynvml.NVML_SUCCESS)

    def _fail(self, symbol: str, arguments: tuple[Any, ...]) -> None:
        """Answers for the first fault that concerns the call, and counts it down."""
        if all(fault.symbol != symbol for fault in self._session.state.faults):
            return
        handle = unpack(arguments[0]) if arguments else None
        minor = handle.minor if handle is not None and handle.type != "event set" else None
        hit: list[Fault] = []

        def count_down(state: NodeState) -> NodeState:
            left = []
            for fault in state.faults:
                if hit or fault.symbol != symbol or fault.minor not in (None, minor):
                    left.append(fault)
                    continue
                hit.append(fault)
                if fault.remaining is None:
                    left.append(fault)
                elif fault.remaining > 1:
                    left.append(replace(fault, remaining=fault.remaining - 1))
            return replace(state, faults=tuple(left))

        self._session.update(count_down)
        if hit:
            answer(hit[0].code)


_WITHOUT_DRIVER = frozenset({"nvmlInitWithFlags", "nvmlInit_v2", "nvmlShutdown"})
