"""Looks for other drivers on the node again and again: they may come and go at any time."""

import logging
import socket
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from carina_dra.kube.backoff import Backoff
from carina_dra.kube.errors import ApiError
from kubelet_plugin.publish.other_drivers import (
    ExtendedResource,
    Offer,
    PublishedGpu,
    SameNamePlugin,
    extended_resources,
    remembered,
)

__all__ = ["OtherDriverWatch", "same_name_plugin"]

_INTERVAL: Final = 60.0
"""Seconds between two readings of the Node; its device plugins change rarely."""
_MEMORY: Final = 300.0
"""Seconds for which an offer counts after it was seen last: longer than a driver's update takes."""
_CHECKPOINT: Final = "checkpoint.jsonl"
"""Carina's own; files whose names begin so are made from it."""
_CONNECT_TIMEOUT: Final = 1.0

_log = logging.getLogger(__name__)


class OtherDriverWatch:
    """What other drivers offer on the node. For one thread."""

    def __init__(
        self,
        *,
        read_node: Callable[[], Mapping[str, Any]],
        same_name_plugin: Callable[[], SameNamePlugin | None],
        clock: Callable[[], float],
        interval: float = _INTERVAL,
        memory: float = _MEMORY,
    ) -> None:
        """`read_node` gives the Node object and may raise ApiError.

        All times are in seconds: `interval` between two looks at Node and plugin directory, spread
        by a tenth so that nodes do not look in step; `memory` for an offer that is seen no more;
        `clock` is monotonic.
        """
        self._read_node = read_node
        self._same_name_plugin = same_name_plugin
        self._clock = clock
        self._pause = Backoff(initial=interval, cap=interval, jitter=0.1)
        self._memory = memory
        self._resources: frozenset[ExtendedResource] | None = None
        self._offers: Mapping[Offer, float] = {}
        self._due = clock()

    @property
    def due(self) -> float:
        """When to ask again, by the clock."""
        return self._due

    def offers(self, in_slices: Iterable[PublishedGpu]) -> tuple[Offer, ...]:
        """Gives what others offer, `in_slices` included; reads the Node if that is due.

        Raises ApiError where the Node cannot be read and never was. Later what was read last holds.
        """
        now = self._clock()
        seen: set[Offer] = set(in_slices)
        if now >= self._due:
            self._resources = self._read_resources()
            plugin = self._same_name_plugin()
            seen |= self._resources | ({plugin} if plugin else set())
            self._due = now + self._pause.next()
        self._offers = remembered(self._offers, seen, now=now, seconds=self._memory)
        return tuple(self._offers)

    def _read_resources(self) -> frozenset[ExtendedResource]:
        try:
            return extended_resources(self._read_node())
        except ApiError as error:
            if self._resources is None:
                raise
            _log.warning("device plugins cannot be looked for", extra={"error": str(error)})
            return self._resources


def same_name_plugin(directory: Path, own_socket: Path) -> SameNamePlugin | None:
    """Finds a plugin other than Carina's at work in the plugin directory of our driver's name.

    It has a checkpoint in another format there, and listens on a socket. A Carina plugin that is
    being replaced has the checkpoint that we have; files of a plugin that is gone do not count.
    """
    checkpoint = _first(directory, "checkpoint*", lambda path: not _is_carinas(path))
    if checkpoint is None:
        return None
    listening = _first(directory, "*.sock", lambda path: path != own_socket and _listens(path))
    return SameNamePlugin(str(listening), str(checkpoint)) if listening else None


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
        except OSError:  # too busy to answer: somebody is there
            return True
    return True
