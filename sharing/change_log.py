"""What the log says when a report differs from the one before: rarely, whatever tenants do.

A pod that takes memory and gives it back exceeds its shares again and again. Reports count that,
and the log says it once in a while.
"""

import logging
from collections.abc import Hashable, Mapping
from itertools import islice
from typing import Final

from carina_dra.sharing.message import ShareUse, SharingReport
from sharing.observation import GpuSample, Seen
from sharing.use import mib

_LOGGED_PROCESSES: Final = 8
_LOGGED_PODS: Final = 8
_QUIET: Final = 60.0
"""Seconds in which the log does not say the same again."""

_log = logging.getLogger(__name__)


class ChangeLog:
    """Writes what changes into the log. For one thread."""

    def __init__(self) -> None:
        self._said: dict[Hashable, float] = {}
        """When something was said last; of the last `_QUIET` seconds."""

    def note(
        self,
        before: SharingReport,
        after: SharingReport,
        samples: Mapping[str, GpuSample],
        now: float,
    ) -> None:
        """Logs uses that have exceeded and GPUs that are not watched any more.

        now: monotonic, in seconds.
        """
        self._said = {what: at for what, at in self._said.items() if now - at < _QUIET}
        exceeded = {(use.gpu, use.claims): use.exceeded for use in before.uses}
        for use in after.uses:
            identity = use.gpu, use.claims
            if use.exceeded > exceeded.get(identity, 0) and self._is_due(identity, now):
                _log.warning(
                    "pods use more memory of a GPU than they have shares of",
                    extra={
                        "gpu": use.gpu,
                        "claims": list(use.claims),
                        "used_mib": use.used_mib,
                        "given_mib": use.given_mib,
                        "pods": _pods(use),
                        "processes": _largest(use, samples),
                        "times": use.exceeded,
                    },
                )
        known = {(gpu.gpu, gpu.reason) for gpu in before.unwatched}
        for gpu in after.unwatched:
            unwatched = gpu.gpu, gpu.reason
            if unwatched not in known and self._is_due(unwatched, now):
                _log.warning(
                    "a shared GPU is not watched", extra={"gpu": gpu.gpu, "reason": gpu.reason}
                )

    def _is_due(self, what: Hashable, now: float) -> bool:
        if what in self._said:
            return False
        self._said[what] = now
        return True


def _pods(use: ShareUse) -> Mapping[str, int]:
    """The pods of a use with the most memory, in MiB."""
    by_size = sorted(use.pods, key=lambda pod: -pod.memory_mib)
    return {f"{pod.pod.namespace}/{pod.pod.name}": pod.memory_mib for pod in by_size[:_LOGGED_PODS]}


def _largest(use: ShareUse, samples: Mapping[str, GpuSample]) -> list[Mapping[str, object]]:
    """The processes of a use with the most memory: a sample has them in that order."""
    sample, pods = samples.get(use.gpu), {pod.pod.uid for pod in use.pods}
    own = (
        {"pid": process.pid, "container": process.container_id, "memory_mib": mib(process.memory)}
        for process in (sample.processes if isinstance(sample, Seen) else ())
        if process.pod_uid in pods
    )
    return list(islice(own, _LOGGED_PROCESSES))
