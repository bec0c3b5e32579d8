"""Logs slices whose devices say a least share that is none: they count with the default.

A slice is logged when what it says changes, and seldom: its node can change it at any rate.
"""

import logging
from collections.abc import Collection
from typing import Final

from carina_dra.least_share import DEFAULT_LEAST_SHARE
from carina_dra.placement.cluster.gpu import invalid_least_share, is_gpu
from carina_dra.resource import ResourceSlice
from controller.report.rate import TokenBucket

_log = logging.getLogger(__name__)
_PAUSE: Final = 60.0
"""Seconds between two lines in the long run."""
_BURST: Final = 20


class LeastShareLog:
    """What has been logged of each slice. Used by one thread."""

    def __init__(self, drivers: Collection[str]) -> None:
        """`drivers` are those whose devices are GPUs."""
        self._drivers = drivers
        self._logged: dict[str, str] = {}
        """By slice: what it says."""
        self._rate = TokenBucket(rate=1 / _PAUSE, burst=_BURST)

    def note(self, name: str, published: ResourceSlice | None, now: float) -> None:
        """Applies a slice, or its removal. `now` is in seconds of any steady clock."""
        found = None if published is None else self._find(published)
        if found is None:
            self._logged.pop(name, None)
            return
        device, said = found
        if self._logged.get(name) != said and self._rate.take(now):
            self._logged[name] = said
            facts = {
                "slice": name,
                "device": device,
                "said": said,
                "counts": str(DEFAULT_LEAST_SHARE),
                "remedy": "set least_share of the kubelet plugin on its node",
            }
            _log.warning("a device says no valid least share; the default holds", extra=facts)

    def _find(self, published: ResourceSlice) -> tuple[str, str] | None:
        """The first device of a GPU that says a least share which is none, and what it says."""
        driver = published.spec.driver
        if driver not in self._drivers:
            return None
        for device in published.spec.devices:
            said = invalid_least_share(device, driver)
            if said is not None and is_gpu(device, driver, self._drivers):
                return device.name, f"{said!r:.100}"
        return None
