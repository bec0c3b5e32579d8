"""Objects that are gone: what is still delivered of them must not bring them back.

The answer to a write may come after a watch has shown that the object was deleted.
"""

from collections import OrderedDict
from typing import Final

_SECONDS: Final = 60.0
"""More than the timeout of a write (`act.writer`) and the longest idle time of the loop together:
while the loop is idle, `now` lags behind."""


class Gone:
    """The UIDs of objects that were deleted lately. Times are Unix times in seconds."""

    def __init__(self) -> None:
        self._since: OrderedDict[str, float] = OrderedDict()

    def __contains__(self, uid: str) -> bool:
        return uid in self._since

    def __len__(self) -> int:
        return len(self._since)

    def add(self, uid: str, now: float) -> None:
        """Records that an object is gone."""
        self._since.setdefault(uid, now)

    def expire(self, now: float) -> None:
        """Forgets those of which nothing can be delivered any more."""
        while self._since:
            uid, since = next(iter(self._since.items()))
            if now < since + _SECONDS:
                break
            del self._since[uid]
