"""What the own Node asks of the plugin, parsed where it enters. No I/O.

A value that cannot be read is left out, and named with its remedy: it must not take away what the
other values say.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from carina_dra.node_keys import EVICT_ALL, NodeKeys

_OPERAND_LABELS: Final = "nvidia.com/gpu.deploy."
"""Prefix of the labels by which NVIDIA's GPU Operator says what runs on a node."""
_PAUSED: Final = "paused-for-"
"""Part of their values while the Operator's driver manager (`paused-for-driver-upgrade`) or its MIG
manager needs GPUs that nothing has open. It replaces `true`, and is appended to other values."""
_SHOWN: Final = 200
"""Characters of a problem that are shown."""


@dataclass(frozen=True, slots=True)
class ReleaseAsked:
    """An administrator asks for the node's GPUs, as `carina node release` does."""

    reason: str
    """May be empty."""
    evict_all: bool
    """Whether pods without a queue are to be evicted, too."""

    def __str__(self) -> str:
        return self.reason or "an administrator asks for it"


@dataclass(frozen=True, slots=True)
class OperandsPaused:
    """NVIDIA's GPU Operator needs the node's GPUs, such as to replace the driver."""

    labels: tuple[str, ...]
    """The labels that say so, sorted."""

    def __str__(self) -> str:
        others = f" and {len(self.labels) - 1} more" if len(self.labels) > 1 else ""
        return f"NVIDIA's GPU Operator has paused {self.labels[0]}{others}"


ReleaseRequest: TypeAlias = ReleaseAsked | OperandsPaused


@dataclass(frozen=True, slots=True)
class InvalidAnnotation:
    """An annotation of the Node, or a part of it, that is ignored."""

    key: str
    problem: str
    remedy: str

    def __str__(self) -> str:
        return f"annotation {self.key} {self.problem}, and is ignored; {self.remedy}"


@dataclass(frozen=True, slots=True)
class NodeView:
    """What the Node asks of the plugin."""

    release: ReleaseRequest | None = None
    """None if the node's GPUs are to be in service."""
    faults_cleared: Mapping[str, datetime] = field(default_factory=dict)
    """Times by the UUID of a GPU: its faults that were first seen before no longer count."""
    invalid: tuple[InvalidAnnotation, ...] = ()


def node_view(node: Mapping[str, Any], driver: str) -> NodeView:
    """Returns what a Node asks of the plugin of a driver."""
    keys = NodeKeys(driver)
    metadata = node.get("metadata", {})
    annotations: Mapping[str, str] = metadata.get("annotations") or {}
    invalid: list[InvalidAnnotation] = []
    release = _release(metadata.get("labels") or {}, annotations, keys, invalid)
    text = annotations.get(keys.faults_cleared)
    cleared = {} if text is None else dict(_faults_cleared(text, keys.faults_cleared, invalid))
    return NodeView(release, cleared, tuple(invalid))


def _release(
    labels: Mapping[str, str],
    annotations: Mapping[str, str],
    keys: NodeKeys,
    invalid: list[InvalidAnnotation],
) -> ReleaseRequest | None:
    evict = annotations.get(keys.release_evict)
    if evict not in (None, EVICT_ALL):
        invalid.append(
            InvalidAnnotation(keys.release_evict, f"is {evict!r}", f"set it to {EVICT_ALL}")
        )
    reason = annotations.get(keys.release)
    if reason is not None:
        return ReleaseAsked(reason, evict_all=evict == EVICT_ALL)
    paused = (
        label
        for label, value in labels.items()
        if label.startswith(_OPERAND_LABELS) and _PAUSED in value
    )
    found = tuple(sorted(paused))
    return OperandsPaused(found) if found else None


def _faults_cleared(
    text: str, key: str, invalid: list[InvalidAnnotation]
) -> Iterator[tuple[str, datetime]]:
    remedy = 'set it to a JSON object such as {"GPU-...": "2026-01-31T12:00:00Z"}'
    try:
        times = json.loads(text)
    except (ValueError, RecursionError):
        times = None
    if not isinstance(times, dict):
        invalid.append(InvalidAnnotation(key, "is no JSON object", remedy))
        return
    for uuid, value in times.items():
        at = _time(value)
        if at is None:
            problem = f"has {value!r} for {uuid}, which is no time in RFC 3339"
            invalid.append(InvalidAnnotation(key, problem[:_SHOWN], remedy))
        else:
            yield uuid, at


def _time(value: object) -> datetime | None:
    """Returns a time in UTC; None without its offset, which RFC 3339 demands."""
    if not isinstance(value, str):
        return None
    try:
        at = datetime.fromisoformat(value)
        return at.astimezone(UTC) if at.tzinfo is not None and "T" in value.upper() else None
    except (ValueError, OverflowError):
        return None
