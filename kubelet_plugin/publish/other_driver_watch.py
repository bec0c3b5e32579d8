"""Observes other drivers on the node, which may be installed and removed at any time."""

import logging
import socket
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from carina_dra.kube.backoff import Backoff
from carina_dra.kube.errors import ApiError
from kubelet_plugin.publish.other_drivers import (
    ExtendedResource,
    OfferedElsewhere,
    PodDevice,
    PublishedGpu,
    SameNamePlugin,
    extended_resources,
    gpus_of_pods,
    remembered,
)

_INTERVAL: Final = 60.0
"""Seconds between two reads of the Node; device plugins change rarely."""
_MEMORY: Final = 300.0
"""Seconds for which an offer counts after it was last seen; an update of a driver takes less."""
_CHECKPOINT: Final = "checkpoint.jsonl"
"""The name of Carina's checkpoint, and the prefix of its copies."""
_LOCK: Final = "serialize.lock"
"""The name of Carina's lock, which is there before the checkpoint."""
_CONNECT_TIMEOUT: Final = 1.0

_log = logging.getLogger(__name__)


class OtherDriverWatch:
    """Collects what other drivers offer on the node. Not thread-safe."""

    def __init__(
        self,
        *,
        read_node: Callable[[], Mapping[str, Any]],
        same_name_plugin: Callable[[], SameNamePlugin | None],
        pod_devices: Callable[[], Collection[PodDevice]],
        clock: Callable[[], float],
        interval: float = _INTERVAL,
        memory: float = _MEMORY,
    ) -> None:
        """`read_node` returns the Node object and may raise ApiError.

        `pod_devices` returns what the node's pods have from device plugins, and may raise OSError;
        then its last result stays in force. That of a pod counts until the pod has ended.

        All times are in seconds: Node and plugin directory are read every `interval`, with 10 %
        jitter so that nodes do not read in step; an offer counts for `memory` after it was last
        seen; `clock` is monotonic.
        """
        self._read_node = read_node
        self._same_name_plugin = same_name_plugin
        self._read_pod_devices = pod_devices
        self._pod_devices: frozenset[PodDevice] = frozenset()
        self._pod_devices_error = ""
        self._clock = clock
        self._pause = Backoff(initial=interval, cap=interval, jitter=0.1)
        self._memory = memory
        self._resources: frozenset[ExtendedResource] | None = None
        self._offers: Mapping[OfferedElsewhere, float] = {}
        self._due = clock()

    @property
    def due(self) -> float:
        """The time on the clock at which the next read is due."""
        return self._due

    def offers(self, in_slices: Iterable[PublishedGpu]) -> tuple[OfferedElsewhere, ...]:
        """Returns what other drivers offer, `in_slices` included. Reads the Node if that is due.

        Raises ApiError if the first read of the Node fails. If a later one fails, the previous
        result stays in force.
        """
        now = self._clock()
        seen: set[OfferedElsewhere] = set(in_slices)
        if now >= self._due:
            self._resources = self._read_resources()
            plugin = self._same_name_plugin()
            seen |= self._resources | ({plugin} if plugin else set())
            self._pod_devices = self._gpus_of_pods()
            self._due = now + self._pause.next()
        self._offers = remembered(self._offers, seen, now=now, seconds=self._memory)
        return (*self._offers, *sorted(self._pod_devices, key=lambda device: device.identity))

    def _gpus_of_pods(self) -> frozenset[PodDevice]:
        try:
            return gpus_of_pods(self._read_pod_devices())
        except OSError as error:
            if str(error) != self._pod_devices_error:
                _log.warning(
                    "the kubelet does not say which pods have devices of device plugins; using "
                    "the last result",
                    extra={"error": str(error)},
                )
            self._pod_devices_error = str(error)
            return self._pod_devices

    def _read_resources(self) -> frozenset[ExtendedResource]:
        try:
            return extended_resources(self._read_node())
        except ApiError as error:
            if self._resources is None:
                raise
            _log.warning(
                "the Node cannot be read to look for device plugins; using the last result",
                extra={"error": str(error)},
            )
            return self._resources


def same_name_plugin(directory: Path, own_socket: Path) -> SameNamePlugin | None:
    """Finds a running plugin of another product in the plugin directory of our driver's name.

    Such a plugin has a checkpoint under another name and listens on a socket. A Carina plugin in a
    rolling update uses our checkpoint, and a plugin that was removed no longer listens. If Carina
    has taken its place, its checkpoint is there beside our files, and `dra-*.sock` is Carina's.
    """
    checkpoint = _first(directory, "checkpoint*", lambda path: not _is_carinas(path))
    if checkpoint is None:
        return None
    beside_ours = any((directory / name).exists() for name in (_CHECKPOINT, _LOCK))

    def is_anothers(path: Path) -> bool:
        carinas = path == own_socket or (beside_ours and path.match("dra-*.sock"))
        return not carinas and _listens(path)

    listening = _first(directory, "*.sock", is_anothers)
    return SameNamePlugin(str(listening), str(checkpoint)) if listening else None


def newer_plugin(directory: Path, own_socket: Path) -> bool:
    """Returns whether a plugin of this driver that began to listen later listens, too.

    The sockets of Carina's plugins are those of `dra*.sock`. False before this one listens.
    """
    try:
        began = own_socket.stat().st_ctime_ns
    except FileNotFoundError:
        return False

    def is_newer(path: Path) -> bool:
        try:
            return path != own_socket and path.stat().st_ctime_ns > began and _listens(path)
        except FileNotFoundError:
            return False

    return _first(directory, "dra*.sock", is_newer) is not None


def _first(directory: Path, pattern: str, fits: Callable[[Path], bool]) -> Path | None:
    return next((path for path in sorted(directory.glob(pattern)) if fits(path)), None)


def _is_carinas(checkpoint: Path) -> bool:
    return checkpoint.name.startswith(_CHECKPOINT)


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_CONNECT_TIMEOUT)
        try:
            probe.connect(str(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError:  # its backlog is full, so a process listens
            return True
    return True
