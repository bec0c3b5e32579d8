"""State directories: everything that a running cluster owns, derived from a small number.

The number determines the path (short, because unix socket paths have at most 107 bytes), the ports,
the pods' addresses and the cgroup, so that clusters on one machine share nothing. A directory is in
use while its lock is held. An unlocked directory was left by a killed process, unless it is marked
as kept.
"""

import fcntl
import ipaddress
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from simulation.kubernetes import reaper

ROOT = Path("/tmp/carina")
FIRST_NUMBER = "CARINA_FIRST_CLUSTER"
"""The environment variable with the least number of this process' clusters, by default 0.

Processes that begin apart do not take the number of a cluster that another has just ended.
"""
_FIRST_PORT = 21000  # below the ports that Linux uses for outgoing connections
_PORTS_EACH = 10
_PODS_OF_A_NODE = 48  # five nodes share the 240 addresses that services do not use
# The range that RFC 2544 reserves for tests in isolated networks.
_SUBNETS = tuple(ipaddress.IPv4Network("198.18.0.0/15").subnets(new_prefix=24))


@dataclass(frozen=True, slots=True)
class StateDirectory:
    """The folder, ports, addresses and processes of a cluster."""

    number: int
    children: list[subprocess.Popen[bytes]] = field(default_factory=list, compare=False)

    @property
    def path(self) -> Path:
        """Path of the directory."""
        return ROOT / str(self.number)

    @property
    def logs(self) -> Path:
        """The folder with the logs of all processes."""
        return self.path / "logs"

    @property
    def subnet(self) -> ipaddress.IPv4Network:
        """The addresses of services and pods."""
        return _SUBNETS[self.number]

    @property
    def service_subnet(self) -> ipaddress.IPv4Network:
        """The addresses of services: the first 16 of the subnet.

        The first usable address is that of the service `kubernetes`. It is also the subnet's
        gateway, which is the host's end of every pod's network link.
        """
        return next(self.subnet.subnets(new_prefix=28))

    @property
    def api_service_address(self) -> ipaddress.IPv4Address:
        """The address of the service `kubernetes`."""
        return self.service_subnet[1]

    def pod_addresses(self, node: int) -> tuple[ipaddress.IPv4Address, ipaddress.IPv4Address]:
        """Returns the first and the last pod address of a node; nodes are counted from 0."""
        first = self.service_subnet.num_addresses + node * _PODS_OF_A_NODE
        return self.subnet[first], self.subnet[first + _PODS_OF_A_NODE - 1]

    def port(self, index: int) -> int:
        """Returns one of the cluster's loopback ports."""
        if not 0 <= index < _PORTS_EACH:
            raise ValueError(
                f"port {index} does not exist; a state directory has {_PORTS_EACH} ports"
            )
        return _FIRST_PORT + self.number * _PORTS_EACH + index

    def keep(self) -> None:
        """Lets the cluster outlive this process."""
        reaper.kept_marker(self.path).touch()


@contextmanager
def claimed() -> Iterator[StateDirectory]:
    """Creates a state directory, which is swept when the context or this process ends.

    Raises:
        RuntimeError: the maximum number of clusters is running.
    """
    _make_root()
    for number in range(int(os.environ.get(FIRST_NUMBER, "0")), len(_SUBNETS)):
        directory = StateDirectory(number)
        with _lock(directory) as lock:
            if lock is None or reaper.kept_marker(directory.path).exists():
                continue
            reaper.sweep(directory.path)
            if not _ports_are_free(directory):
                continue
            directory.path.mkdir(mode=0o700)
            directory.logs.mkdir()
            with _guarded(directory):
                yield directory
            return
    raise RuntimeError(f"no state directory is free; check which clusters run in {ROOT}")


def kept() -> list[StateDirectory]:
    """Returns the state directories of kept clusters."""
    return [
        StateDirectory(int(marker.parent.name))
        for marker in sorted(ROOT.glob("*/kept"))
        if os.access(marker, os.W_OK)
    ]


def release(directory: StateDirectory) -> None:
    """Ends a kept cluster."""
    with _lock(directory) as lock:
        if lock is None:
            raise RuntimeError(f"{directory.path} is in use: another process is ending it")
        reaper.sweep(directory.path)


@contextmanager
def _guarded(directory: StateDirectory) -> Iterator[None]:
    guard = subprocess.Popen(
        [sys.executable, "-I", reaper.__file__, str(directory.path)],
        stdin=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for the owner
    )
    try:
        yield
    finally:
        if not reaper.kept_marker(directory.path).exists():
            reaper.sweep(directory.path)
            for child in directory.children:
                child.wait()
        guard.kill()
        guard.communicate()


@contextmanager
def _lock(directory: StateDirectory) -> Iterator[IO[str] | None]:
    """Tries to lock the directory; None if another process or user holds the lock."""
    try:
        lock = reaper.lock_path(directory.path).open("a")
    except PermissionError:
        yield None
        return
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
        else:
            yield lock


def _make_root() -> None:
    if not ROOT.is_dir():
        ROOT.mkdir(exist_ok=True)
        ROOT.chmod(0o1777)  # like /tmp, because every user can have clusters


def _ports_are_free(directory: StateDirectory) -> bool:
    for index in range(_PORTS_EACH):
        with closing(socket.socket()) as probe:
            probe.setsockopt(
                socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
            )  # ignores connections in TIME_WAIT
            try:
                probe.bind(("127.0.0.1", directory.port(index)))
            except OSError:
                return False
    return True
