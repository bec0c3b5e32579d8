"""The pods of the claims that have shares, as the API server says.

A claim is read once it is prepared. Another pod may use it later, and the kubelet does not say so:
then carina-sharing reports processes of strangers on the GPU, and the claims of the GPU are read
again, rarer and rarer as long as that changes nothing. Any claim can get another pod, also one that
a template made: a pod may name it.
"""

import itertools
import logging
import threading
from collections.abc import Callable, Collection, Iterable
from typing import Final

from carina_dra.kube.backoff import Backoff
from carina_dra.kube.body import Body
from carina_dra.kube.errors import ApiError, NotFound
from carina_dra.resource import DecodeError, ResourceClaim, decode
from carina_dra.sharing.message import Reference, Strangers, WantedShare
from kubelet_plugin.claims.claim import ClaimReference, NodeClaim
from kubelet_plugin.sharing.wanted import PodsOfClaims, has_shares, pods_of

_PACE: Final = 0.05
"""Seconds between two reads."""
_SOONEST: Final = 2.0
"""Seconds after which claims may be read again because of strangers on their GPU."""
_LATEST: Final = 600.0
"""Seconds after which they are, while the same strangers stay."""
_MORE_STRANGERS: Final = 10.0
"""Seconds after which they are if there are more strangers than at the last time."""

_log = logging.getLogger(__name__)


class StrangerWatch:
    """Decides when strangers on a GPU are a reason to read its claims again."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, float, float]] = {}
        """By GPU: the number of processes at the last time, when that was, and the next delay."""

    def due(self, strangers: Iterable[Strangers], now: float) -> frozenset[str]:
        """Returns the GPUs whose claims are to be read now; `now` is monotonic, in seconds."""
        found = set()
        for group in strangers:
            processes, at, delay = self._seen.get(group.gpu, (0, now - _SOONEST, _SOONEST))
            more = group.processes > processes
            if now - at >= (min(delay, _MORE_STRANGERS) if more else delay):
                found.add(group.gpu)
                self._seen[group.gpu] = group.processes, now, min(2 * delay, _LATEST)
        return frozenset(found)

    def found_pods(self) -> None:
        """The reads were of use: strangers turned out to be pods of a claim."""
        self._seen = {gpu: (count, at, _SOONEST) for gpu, (count, at, _) in self._seen.items()}

    def keep(self, gpus: Collection[str]) -> None:
        """Forgets all other GPUs, which are not shared any more."""
        self._seen = {gpu: seen for gpu, seen in self._seen.items() if gpu in gpus}


class ClaimPods:
    """Reads claims in a thread of its own. Thread-safe."""

    def __init__(
        self,
        read: Callable[[ClaimReference], Body],
        *,
        joined: Callable[[], None],
        clock: Callable[[], float],
        backoff: Backoff | None = None,
    ) -> None:
        """`read` raises ApiError. `joined` is called when a claim of several pods has other pods
        than before, so that the limits of pods have to be set again.
        """
        self._read = read
        self._changed: Callable[[], None] = _ignore
        self._joined = joined
        self._clock = clock
        self._backoff = backoff or Backoff(initial=1.0, cap=60.0)
        self._state = threading.Condition()
        self._claims: dict[str, ClaimReference] = {}
        self._pods: dict[str, tuple[Reference, ...]] = {}
        self._asked: dict[str, int] = {}
        """UIDs of claims to read, in this order, with the number of the question."""
        self._questions = itertools.count()
        self._strangers = StrangerWatch()
        self._stopped = False

    def start(self, changed: Callable[[], None]) -> None:
        """Starts the thread; `changed` is called when more is known."""
        self._changed = changed
        threading.Thread(target=self._run, name="claim-pods", daemon=True).start()

    def stop(self) -> None:
        """Ends the thread."""
        with self._state:
            self._stopped = True
            self._state.notify_all()

    @property
    def known(self) -> PodsOfClaims:
        """What is known."""
        with self._state:
            return dict(self._pods)

    @property
    def complete(self) -> bool:
        """Whether every claim was read."""
        with self._state:
            return not self._claims.keys() - self._pods.keys()

    def follow(self, claims: Iterable[NodeClaim]) -> None:
        """Sets the recorded claims: those with shares that are new are read, others forgotten."""
        sharing = {claim.uid: claim for claim in claims if has_shares(claim)}
        with self._state:
            self._claims = {uid: claim.reference for uid, claim in sharing.items()}
            self._pods = {uid: pods for uid, pods in self._pods.items() if uid in sharing}
            self._asked = {uid: asked for uid, asked in self._asked.items() if uid in sharing}
            self._ask(uid for uid in sharing if uid not in self._pods and uid not in self._asked)

    def prepared(self, claim: NodeClaim) -> None:
        """Says that a claim was prepared or repaired; returns at once.

        If the call has read other pods than are known, the claim is read again.
        """
        with self._state:
            known = self._pods.get(claim.uid)
            if claim.pods is None or known is None or claim.uid not in self._claims:
                return
            if {pod.uid for pod in known} != set(claim.pods):
                self._ask([claim.uid])

    def pods_of(self, claim: str) -> frozenset[str]:
        """Returns the UIDs of the pods of a claim, by its UID; empty if they are not known.

        One that has several is read again, since it may have fewer now.
        """
        with self._state:
            known = self._pods.get(claim, ())
            if len(known) > 1 and claim not in self._asked:
                self._ask([claim])
            return frozenset(pod.uid for pod in known)

    def see_strangers(
        self, strangers: Iterable[Strangers], shares: Collection[WantedShare]
    ) -> None:
        """Schedules reads of the claims on whose GPU strangers compute."""
        with self._state:
            self._strangers.keep({share.gpu for share in shares})
            gpus = self._strangers.due(strangers, self._clock())
            of_gpus = dict.fromkeys(share.claim.uid for share in shares if share.gpu in gpus)
            self._ask(uid for uid in of_gpus if uid in self._claims)

    def _ask(self, uids: Iterable[str]) -> None:
        """Has claims read; a read that has begun does not count. The caller holds the lock."""
        self._asked |= {uid: next(self._questions) for uid in uids}
        self._state.notify_all()

    def _run(self) -> None:
        while (found := self._next()) is not None:
            claim, question = found
            try:
                pods = self._pods_of(claim)
            except ApiError as error:
                _log.warning(
                    "the pods of a claim with shares cannot be read; retrying",
                    extra={"claim": claim.key, "reason": str(error)},
                )
                self._put_last(claim.uid)
                self._pause(self._backoff.next())
                continue
            self._backoff.reset()
            self._learn(claim.uid, pods, question)
            self._pause(_PACE)

    def _next(self) -> tuple[ClaimReference, int] | None:
        """Waits for a claim to read; None if the plugin stops."""
        with self._state:
            self._state.wait_for(lambda: self._asked or self._stopped)
            if self._stopped:
                return None
            uid, question = next(iter(self._asked.items()))
            return self._claims[uid], question

    def _put_last(self, uid: str) -> None:
        """Lets the reads of other claims come first."""
        with self._state:
            question = self._asked.pop(uid, None)
            if question is not None:
                self._asked[uid] = question

    def _learn(self, uid: str, found: tuple[Reference, ...] | None, question: int) -> None:
        with self._state:
            if self._asked.get(uid) == question:
                del self._asked[uid]
            before = self._pods.get(uid)
            pods = before or () if found is None else found
            if uid not in self._claims or before == pods:
                return
            if before is not None:
                self._strangers.found_pods()
            self._pods[uid] = pods
        self._changed()
        if max(len(pods), len(before or ())) > 1:
            self._joined()

    def _pods_of(self, claim: ClaimReference) -> tuple[Reference, ...] | None:
        """Returns the pods of a claim; None if it does not say them, such as one that is gone.

        Who may delete a claim must not make its pods unknown: they can still use the GPU.

        Raises:
            ApiError: it cannot be read.
        """
        try:
            found = decode(ResourceClaim, self._read(claim))
        except NotFound:
            return None
        except DecodeError as error:
            _log.warning("a claim cannot be read", extra={"claim": claim.key, "why": str(error)})
            return None
        return pods_of(found) if found.metadata.uid == claim.uid else None

    def _pause(self, seconds: float) -> None:
        with self._state:
            self._state.wait_for(lambda: self._stopped, seconds)


def _ignore() -> None:
    pass
