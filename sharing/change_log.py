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
from sharing.use import memory_mib
from sharing.violators import Violator

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
        known = {(use.gpu, claim): use for use in before.uses for claim in use.claims}
        for use in after.uses:
            identity = use.gpu, use.claims
            parts = [known[use.gpu, claim] for claim in use.claims if (use.gpu, claim) in known]
            ended = use.ended > max((part.ended for part in parts), default=0)
            if use.last_ended and ended and self._is_due((*identity, use.last_ended.why), now):
                _log.warning(
                    "a process was ended",
                    extra={
                        "gpu": use.gpu,
                        "claims": list(use.claims),
                        "pod": f"{use.last_ended.pod.namespace}/{use.last_ended.pod.name}",
                        "container": use.last_ended.container_id,
                        "memory_mib": use.last_ended.memory_mib,
                        "why": use.last_ended.why,
                        "times": use.ended,
                    },
                )
            exceeded = use.exceeded > max((part.exceeded for part in parts), default=0)
            if exceeded and self._is_due(identity, now):
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
        blind = {(gpu.gpu, gpu.reason) for gpu in before.unwatched}
        for gpu in after.unwatched:
            unwatched = gpu.gpu, gpu.reason
            if unwatched not in blind and self._is_due(unwatched, now):
                _log.warning(
                    "a shared GPU is not watched", extra={"gpu": gpu.gpu, "reason": gpu.reason}
                )

    def spared(self, violator: Violator, reason: str, now: float) -> None:
        """Logs that a process was not ended."""
        if self._is_due((*violator.use, reason), now):
            _log.warning(
                "a process that was to be ended was not",
                extra={
                    "gpu": violator.use[0],
                    "claims": list(violator.use[1]),
                    "pod": f"{violator.pod.namespace}/{violator.pod.name}",
                    "pid": violator.process.pid,
                    "reason": reason,
                },
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
        {
            "pid": process.pid,
            "container": process.container_id,
            "memory_mib": memory_mib([process]),
        }
        for process in (sample.processes if isinstance(sample, Seen) else ())
        if process.pod_uid in pods
    )
    return list(islice(own, _LOGGED_PROCESSES))
