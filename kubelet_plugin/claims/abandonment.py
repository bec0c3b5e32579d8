"""Finds recorded claims that are possibly abandoned, and limits how often they are read.

Only the kubelet knows when the last container of a claim has ended; it then asks to unprepare the
claim. So only claims that the kubelet's own record has lacked for a while are read from the API
server, rarely, and with jitter.
"""

from collections.abc import Callable, Collection

from kubelet_plugin.claims.claim import NodeClaim
from kubelet_plugin.claims.kubelet_record import KubeletRecord

_FORGOTTEN_DELAY = 600.0
"""Seconds that the kubelet's record must lack a claim before it is read from the API server."""
_READ_INTERVAL = 300.0
"""Seconds between two such reads of a claim, plus up to half of it as jitter."""


class Abandonment:
    """Records since when the kubelet's record lacks each claim."""

    def __init__(self, *, clock: Callable[[], float], random: Callable[[], float]) -> None:
        """`clock` is monotonic, in seconds; `random` returns numbers from 0 to 1."""
        self._clock = clock
        self._random = random
        self._since: dict[str, float] = {}
        self._next_read: dict[str, float] = {}

    def suspects(
        self, claims: Collection[NodeClaim], record: KubeletRecord
    ) -> tuple[NodeClaim, ...]:
        """Returns the claims to read from the API server now."""
        now = self._clock()
        forgotten = {claim.uid: claim for claim in claims if not record.holds(claim.uid)}
        self._since = {uid: self._since.get(uid, now) for uid in forgotten}
        self._next_read = {uid: at for uid, at in self._next_read.items() if uid in forgotten}
        due = [
            claim
            for uid, claim in forgotten.items()
            if now - self._since[uid] >= _FORGOTTEN_DELAY and now >= self._next_read.get(uid, now)
        ]
        for claim in due:
            self._next_read[claim.uid] = now + _READ_INTERVAL * (1 + self._random() / 2)
        return tuple(due)

    def forget(self, uid: str) -> None:
        """Forgets since when the record lacks a claim, because it was unprepared."""
        self._since.pop(uid, None)

    def start_over(self) -> None:
        """Forgets it for all claims, because the kubelet's record cannot be read."""
        self._since.clear()
