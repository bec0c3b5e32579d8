"""The port for MPS daemons: has carina-sharing run one for each claim that needs it.

What is needed is recorded, and carina-sharing told the record. It starts the daemon, sets its
limits and reads them back. Until it says that the daemon is ready, the claim's CDI spec is not
written, so no container of the pod can start and compute without it. Once the daemon was ready,
carina-sharing starts it again with its limits if it dies, and a repair only looks. A call of the
kubelet waits again, since a container of another pod of the claim may be about to start; but not
for long after a wait in vain, since the other claims of the GPU wait, too.
"""

import os
from collections.abc import Collection
from pathlib import Path
from typing import Final, assert_never

from carina_dra.sharing.files import MPS_PIPES, MPS_SHM
from carina_dra.sharing.message import MpsDaemon, WantedDaemon
from kubelet_plugin.claims.resource_failure import (
    MpsDaemonNotEnded,
    MpsDaemonNotReady,
    SharingMissing,
    file_failure,
)
from kubelet_plugin.prepare.daemon_records import DaemonRecord, DaemonRecords
from kubelet_plugin.prepare.resource import (
    Identity,
    LeftBehindError,
    MadeMps,
    MpsControlDaemon,
    ResourceError,
    daemon_identity,
)
from kubelet_plugin.sharing.standing import printable
from kubelet_plugin.sharing.supervision import (
    Answered,
    NotAnswered,
    SharingAnswer,
    SharingAway,
    Supervision,
)

_PATIENCE: Final = 4.0
"""Seconds for which a daemon that starts is waited for. Other calls wait for its GPU meanwhile, and
the call is tried again."""
_AWAY: Final = 2.0
"""Seconds for which carina-sharing is waited for, such as while it starts again."""
_AGAIN: Final = 0.5
"""Seconds for either, if the last call for the claim waited in vain."""
_LONGEST: Final = 500
"""Letters of what carina-sharing says, so that an Event has room for the rest."""
_ENDING: Final = 1.0
"""Seconds for which the end of a daemon is waited for."""


class MpsDaemons:
    """The MPS daemons of this driver's claims on the node."""

    def __init__(self, records: DaemonRecords, folders: Path, supervision: Supervision) -> None:
        """`folders` is the folder in which carina-sharing has a folder for each daemon."""
        self._records = records
        self._folders = folders
        self._supervision = supervision
        self._in_vain: set[str] = set()
        """The UIDs of the claims whose daemon was last waited for in vain."""

    def observe(self) -> Collection[Identity]:
        """Returns the identities of the daemons that are recorded or have a folder.

        Raises:
            ResourceError: the record or the folders cannot be read.
        """
        return {daemon_identity(claim) for claim in (*self._records.claims(), *self._there())}

    def left(self) -> tuple[str, ...]:
        """Returns the UIDs of the claims whose daemon is needed no more and has not ended, sorted.

        Raises:
            ResourceError: the record or the folders cannot be read.
        """
        return tuple(sorted(frozenset(self._there()) - self._records.claims()))

    def make(self, daemon: MpsControlDaemon) -> MadeMps:
        """Has the daemon started, and waits until it is ready.

        Raises:
            ResourceError: it is not recorded or not ready in time; or, where no container is about
                to start, it was ready, and carina-sharing now says that it fails.
        """
        wanted = daemon.wanted
        record = self._records.read(wanted.claim.uid)
        if record is None or record.wanted != wanted:
            record = DaemonRecord(wanted)
            self._records.store(record)
            self._in_vain.discard(wanted.claim.uid)
            self._supervision.changed()
        if record.ready and not daemon.starts:
            self._refuse_failed(wanted, self._supervision.answer)
        else:
            self._wait_until_ready(wanted)
            if not record.ready:
                self._records.store(DaemonRecord(wanted, ready=True))
        folder = self._folders / wanted.claim.uid
        return MadeMps(pipe=str(folder / MPS_PIPES), shm=str(folder / MPS_SHM))

    def remove(self, identity: Identity) -> None:
        """Has the daemon ended, if there is one, and waits for that if it was recorded.

        Raises:
            LeftBehindError: it has not ended yet.
            ResourceError: the record cannot be changed, or the folders cannot be read.
        """
        claim = identity.name
        self._in_vain.discard(claim)
        if self._records.remove(claim):
            self._supervision.changed()
            self._supervision.wait(lambda answer: _has_ended(claim, answer), _ENDING)
        self._refuse_left(claim)

    def remove_leftover(self, identity: Identity) -> None:
        """Has the daemon of a claim ended that needs it no more. It is not waited for.

        To tell carina-sharing needs the node's lock, which the caller holds. The next check says
        whether it has ended.

        Raises:
            LeftBehindError: it was told to end before, and has not.
            ResourceError: the record cannot be changed, or the folders cannot be read.
        """
        self._in_vain.discard(identity.name)
        if self._records.remove(identity.name):
            self._supervision.changed()
        else:
            self._refuse_left(identity.name)

    def _refuse_left(self, claim: str) -> None:
        if claim in self._there():
            folder = str(self._folders / claim)
            raise LeftBehindError(MpsDaemonNotEnded(claim, folder, _present(claim, self._answer())))

    def _answer(self) -> SharingAnswer:
        return self._supervision.answer

    def _wait_until_ready(self, wanted: WantedDaemon) -> None:
        claim = wanted.claim.uid
        again = claim in self._in_vain
        self._in_vain.add(claim)
        away, patience = (_AGAIN, _AGAIN) if again else (_AWAY, _PATIENCE)
        answer = self._supervision.wait(lambda now: not isinstance(now, SharingAway), away)
        if not isinstance(answer, SharingAway):
            answer = self._supervision.wait(lambda now: _is_decided(wanted, now), patience)
        match answer:
            case SharingAway():
                raise ResourceError(SharingMissing())
            case NotAnswered():
                raise ResourceError(MpsDaemonNotReady(claim, "carina-sharing does not answer"))
            case Answered(_, no_mps) if no_mps is not None:
                raise ResourceError(MpsDaemonNotReady(claim, printable(no_mps, _LONGEST)))
            case Answered(daemons):
                found = daemons.get(claim)
                if found is None or found.wanted != wanted or found.state != "ready":
                    reason = "it has not been started" if found is None else _why(found)
                    reason = reason or f"it has not started within {_PATIENCE:g} s"
                    raise ResourceError(MpsDaemonNotReady(claim, reason))
                self._in_vain.discard(claim)
                return
        assert_never(answer)

    def _refuse_failed(self, wanted: WantedDaemon, answer: SharingAnswer) -> None:
        """Refuses a daemon that was ready and fails now; one that starts again is waited for by
        nobody."""
        found = answer.daemons.get(wanted.claim.uid) if isinstance(answer, Answered) else None
        if found is not None and found.state == "failed":
            raise ResourceError(MpsDaemonNotReady(wanted.claim.uid, _why(found) or "it fails"))

    def _there(self) -> Collection[str]:
        """Returns the UIDs of the claims whose daemon has a folder."""
        try:
            with os.scandir(self._folders) as entries:
                return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise ResourceError(
                file_failure(
                    f"the folders of MPS daemons in {self._folders}",
                    "listed",
                    error,
                    "check that the folder exists and is readable",
                )
            ) from error


def _why(daemon: MpsDaemon) -> str:
    """Who is root in a container can answer for the daemon, and operators read it."""
    return printable(daemon.reason, _LONGEST)


def _is_decided(wanted: WantedDaemon, answer: SharingAnswer) -> bool:
    match answer:
        case SharingAway():
            return True
        case NotAnswered():
            return False
        case Answered(daemons, no_mps):
            found = daemons.get(wanted.claim.uid)
            decided = found is not None and found.wanted == wanted and found.state != "starting"
            return decided or no_mps is not None
    assert_never(answer)


def _has_ended(claim: str, answer: SharingAnswer) -> bool:
    """Whether nothing is to be waited for: carina-sharing may be gone, and the daemon run on."""
    match answer:
        case SharingAway():
            return True
        case NotAnswered():
            return False
        case Answered(daemons):
            return claim not in daemons
    assert_never(answer)


def _present(claim: str, answer: SharingAnswer) -> str:
    match answer:
        case SharingAway():
            return "carina-sharing does not run on this node"
        case NotAnswered():
            return "carina-sharing does not answer"
        case Answered(daemons):
            found = daemons.get(claim)
            return (_why(found) if found else "") or "carina-sharing is ending it"
    assert_never(answer)
