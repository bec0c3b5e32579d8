"""The merge patch (RFC 7386) that makes the status of an object the desired one.

A desired status has conditions without `lastTransitionTime`. The time follows from the present
status: it changes only when the status of the condition does (meta/v1 Condition).
"""

from collections.abc import Mapping
from typing import Any, Final

from carina_dra.kube.body import Body
from carina_dra.kube.timestamp import timestamp

_CONDITIONS: Final = "conditions"
_TRANSITION: Final = "lastTransitionTime"


def status_patch(present: Body, desired: Body, now: float) -> Body:
    """The changes to `status`; empty if it is as desired. `now` is a Unix time in seconds."""
    return _difference(present, _with_times(present, desired, now))


def is_turn(present: Body, desired: Body) -> bool:
    """Whether a condition appears, disappears or has another status or reason."""
    return _states(present) != _states(desired)


def _with_times(present: Body, desired: Body, now: float) -> Body:
    if _CONDITIONS not in desired:
        return desired
    known = {each.get("type"): each for each in present.get(_CONDITIONS) or ()}
    conditions = []
    for condition in desired[_CONDITIONS]:
        before = known.get(condition["type"], {})
        has_turned = before.get("status") != condition["status"]
        since = timestamp(now) if has_turned else before.get(_TRANSITION, timestamp(now))
        conditions.append({**condition, _TRANSITION: since})
    return {**desired, _CONDITIONS: conditions}


def _difference(present: Mapping[str, Any], desired: Mapping[str, Any]) -> Body:
    changes: Body = {name: None for name in present if name not in desired}
    for name, value in desired.items():
        before = present.get(name)
        if isinstance(value, dict) and isinstance(before, dict):
            inner = _difference(before, value)
            if inner:
                changes[name] = inner
        elif value != before:
            changes[name] = value
    return changes


def _states(status: Body) -> set[tuple[object, ...]]:
    return {
        (each.get("type"), each.get("status"), each.get("reason"))
        for each in status.get(_CONDITIONS) or ()
    }
