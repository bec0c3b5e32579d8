"""The phases in which a node's GPUs are released and restored. No I/O, no clock.

    in service -> draining -> released -> restoring -> in service

The phase is in a file, and each step is taken after it was written there, so that a plugin that is
killed goes on. A plugin that starts in the phase `released` does not load NVML.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, assert_never

from kubelet_plugin.node.view import ReleaseRequest

_SHOWN: Final = 10
"""Claims that one message names."""


class Phase(StrEnum):
    """What the plugin does about a release. The value is that of the annotation."""

    IN_SERVICE = "in-service"
    """The GPUs are published without the taint."""
    DRAINING = "draining"
    """They are tainted, no claim is newly prepared, and those that are prepared still use them."""
    RELEASED = "released"
    """No claim is prepared, and the plugin has nothing of the driver open."""
    RESTORING = "restoring"
    """NVML is used again, and the GPUs are tainted until prepared claims were checked."""


@dataclass(frozen=True, slots=True)
class ReleaseFacts:
    """What decides about the next phase."""

    request: ReleaseRequest | None
    holders: Sequence[str]
    """The prepared claims on the node."""
    published: bool
    """Whether the GPUs are published as the phase has them: with the taint, or without it."""
    settled: bool
    """Whether GPUs were read and prepared claims checked since the plugin started."""


def next_phase(phase: Phase, facts: ReleaseFacts) -> Phase:
    """Returns the phase that follows; the same one if there is nothing to do."""
    asked = facts.request is not None
    match phase:
        case Phase.IN_SERVICE:
            return Phase.DRAINING if asked else phase
        case Phase.DRAINING if not asked:
            return Phase.IN_SERVICE if facts.settled else Phase.RESTORING
        case Phase.DRAINING:
            drained = facts.published and not facts.holders
            return Phase.RELEASED if drained else phase
        case Phase.RELEASED:
            return phase if asked else Phase.RESTORING
        case Phase.RESTORING if asked:
            return Phase.DRAINING
        case Phase.RESTORING:
            return Phase.IN_SERVICE if facts.settled else phase
    assert_never(phase)


@dataclass(frozen=True, slots=True)
class ReleaseAnswer:
    """What the plugin says on its Node."""

    phase: str | None
    """The annotation; None for no annotation."""
    released: bool
    """The status of the condition."""
    reason: str
    message: str


def answer(phase: Phase, facts: ReleaseFacts) -> ReleaseAnswer:
    """Returns what the Node says of a phase."""
    match phase:
        case Phase.IN_SERVICE:
            return ReleaseAnswer(None, released=False, reason="InService", message="")
        case Phase.DRAINING:
            text = f"{_cause(facts)}; {_some(facts)}"
            return ReleaseAnswer(str(phase), released=False, reason="Draining", message=text)
        case Phase.RELEASED:
            text = f"{_cause(facts)}; the plugin has closed the driver and its devices"
            return ReleaseAnswer(str(phase), released=True, reason="Released", message=text)
        case Phase.RESTORING:
            text = "waiting for the driver, and checking the claims that are prepared"
            return ReleaseAnswer(str(phase), released=False, reason="Restoring", message=text)
    assert_never(phase)


def _cause(facts: ReleaseFacts) -> str:
    return "no longer asked for" if facts.request is None else str(facts.request)


def _some(facts: ReleaseFacts) -> str:
    if not facts.holders:
        return "no claim is prepared; the taint is not published yet"
    named = ", ".join(facts.holders[:_SHOWN])
    more = len(facts.holders) - _SHOWN
    return f"{len(facts.holders)} claims are prepared: {named}" + (
        f" and {more} more" if more > 0 else ""
    )
