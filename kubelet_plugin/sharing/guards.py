"""What carina-sharing offers for the shares of each GPU, as it says itself.

What it said last counts while it is away for a moment, also across a restart of this process: else
the devices would be published twice, and claims that demand it refused meanwhile.
"""

import threading
from collections.abc import Callable, Mapping
from typing import Final

from carina_dra.sharing.message import Offers, SharingReport
from kubelet_plugin.inventory.share_guard import UNGUARDED, ShareGuard

_BLIND: Final = 30.0
"""Seconds for which the processes of a shared GPU cannot be told, after which it counts as one
whose violators are not ended. Each newly shared GPU is not watched for a moment."""


class ShareGuards:
    """The guards by the UUIDs of GPUs. Thread-safe."""

    def __init__(self, *, changed: Callable[[], None], clock: Callable[[], float]) -> None:
        """`changed` is called when a guard may have changed; `clock` is monotonic, in seconds."""
        self._changed = changed
        self._clock = clock
        self._state = threading.Lock()
        self._recalled: Mapping[str, ShareGuard] = {}
        """What an earlier process knew, until carina-sharing has said something."""
        self._offers = Offers()
        self._unseen: Mapping[str, float] = {}
        """Since when the processes of a GPU cannot be told."""
        self._blind: frozenset[str] = frozenset()

    def of(self, uuid: str) -> ShareGuard:
        """Returns what carina-sharing does for shares of the GPU with this UUID."""
        with self._state:
            recalled = self._recalled.get(uuid)
            if recalled is not None:
                return recalled
            return ShareGuard(
                ends_violators=self._offers.ends_violators and uuid not in self._blind,
                mps=self._offers.no_mps is None,
            )

    def recall(self, known: Mapping[str, ShareGuard]) -> None:
        """Sets what an earlier process knew, by the UUIDs of GPUs."""
        with self._state:
            self._recalled = {gpu: guard for gpu, guard in known.items() if guard != UNGUARDED}

    def hear(self, report: SharingReport) -> None:
        """Sets what carina-sharing says."""
        with self._state:
            before = self._recalled, self._offers, self._blind
            now = self._clock()
            self._unseen = {seen.gpu: self._unseen.get(seen.gpu, now) for seen in report.unwatched}
            watched = {use.gpu for use in report.uses}
            blind = {gpu for gpu, since in self._unseen.items() if now - since >= _BLIND}
            self._recalled, self._offers = {}, report.offers
            self._blind = (self._blind - watched) | blind
            changed = before != (self._recalled, self._offers, self._blind)
        if changed:
            self._changed()

    def forget(self) -> None:
        """Says that carina-sharing is gone."""
        with self._state:
            changed = bool(self._recalled) or self._offers != Offers()
            self._recalled, self._offers = {}, Offers()
        if changed:
            self._changed()
