"""Durations and timestamps (CEL specification, "Timestamp and Duration")."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from carina_dra.cel.errors import EvaluationError
from carina_dra.cel.functions.cost import constant
from carina_dra.cel.functions.overload import Overload, method
from carina_dra.cel.types import DURATION, INT, STRING, TIMESTAMP
from carina_dra.cel.values import INT64_MAX, INT64_MIN, Duration, Timestamp, shown

_UNITS: Final = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_PART: Final = re.compile(r"(?P<whole>[0-9]*)(?:\.(?P<part>[0-9]*))?(?P<unit>ns|us|µs|μs|ms|s|m|h)")
_TIMESTAMP: Final = re.compile(
    r"(?P<date>\d{4}-\d\d-\d\d)T(?P<time>\d\d:\d\d:\d\d)(?:\.(?P<fraction>\d{1,9})\d*)?"
    r"(?P<zone>Z|[+-]\d\d:\d\d)",
    re.ASCII,
)
_FIXED_ZONE: Final = re.compile(r"(?P<sign>[+-]?)(?P<hours>\d\d):(?P<minutes>\d\d)", re.ASCII)
_ZONE: Final = re.compile(r"[A-Za-z0-9_+-]+(?:/[A-Za-z0-9_+-]+)*", re.ASCII)
_LONGEST: Final = 200
"""The maximal number of characters of a duration, timestamp or time zone. Go has no limit."""
_FIELD_COST: Final = 5
_ZONE_COST: Final = 500
"""The cost of reading a time zone from its file."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def parse_duration(text: str) -> Duration:
    """Parses a duration in Go's notation: `1h30m`, `-1.5s`.

    Raises:
        EvaluationError: the text is not a duration.
    """
    problem = EvaluationError(f"time: invalid duration {shown(text)}")
    if len(text) > _LONGEST:
        raise problem
    rest = text.lstrip("+-") if text[:1] in "+-" and text[1:2] not in "+-" else text
    if rest == "0":
        return Duration(0)
    total = 0
    while rest or not text:
        match = _PART.match(rest)
        if match is None or not (match["whole"] or match["part"]):
            raise problem
        unit = _UNITS[match["unit"]]
        total += int(match["whole"] or 0) * unit
        if match["part"]:
            total += int(match["part"]) * unit // 10 ** len(match["part"])
        rest = rest[match.end() :]
    total = -total if text.startswith("-") else total
    if not INT64_MIN <= total <= INT64_MAX:
        raise problem
    return Duration(total)


def parse_timestamp(text: str) -> Timestamp:
    """Parses a timestamp of RFC 3339.

    Raises:
        EvaluationError: the text is not a timestamp.
    """
    problem = EvaluationError(f"parsing time {shown(text)}: it is not RFC 3339")
    match = _TIMESTAMP.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise problem
    zone = "+00:00" if match["zone"] == "Z" else match["zone"]
    try:
        moment = datetime.fromisoformat(f"{match['date']}T{match['time']}{zone}")
    except ValueError:
        raise problem from None
    seconds = (moment - _EPOCH) // timedelta(seconds=1)
    return Timestamp(seconds * 10**9 + int((match["fraction"] or "0").ljust(9, "0")))


def written(value: Timestamp | Duration) -> str:
    """A duration in seconds, or a timestamp in RFC 3339."""
    whole, nanos = divmod(abs(value.nanos) if isinstance(value, Duration) else value.nanos, 10**9)
    fraction = f".{nanos:09d}".rstrip("0") if nanos else ""
    if isinstance(value, Duration):
        return f"{'-' if value.nanos < 0 else ''}{whole}{fraction}s"
    return f"{_moment(Timestamp(whole * 10**9)):%Y-%m-%dT%H:%M:%S}{fraction}Z"


def _moment(value: Timestamp) -> datetime:
    return _EPOCH + timedelta(microseconds=value.nanos // 1000)


def _in_zone(value: Timestamp, zone: str) -> datetime:
    problem = EvaluationError(f"unknown time zone {shown(zone)}")
    if len(zone) > _LONGEST:
        raise problem
    match = _FIXED_ZONE.fullmatch(zone)
    moment = _moment(value)
    try:
        if match is not None:
            offset = timedelta(hours=int(match["hours"]), minutes=int(match["minutes"]))
            return moment.astimezone(timezone(-offset if match["sign"] == "-" else offset))
        if zone and not _ZONE.fullmatch(zone):
            raise problem
        return moment.astimezone(ZoneInfo(zone) if zone else UTC)
    except (ZoneInfoNotFoundError, ValueError, OverflowError, OSError):  # OSError for a folder
        raise problem from None


_FIELDS: Final[dict[str, Callable[[datetime], int]]] = {
    "getFullYear": lambda at: at.year,
    "getMonth": lambda at: at.month - 1,
    "getDayOfYear": lambda at: at.timetuple().tm_yday - 1,
    "getDayOfMonth": lambda at: at.day - 1,
    "getDate": lambda at: at.day,
    "getDayOfWeek": lambda at: at.isoweekday() % 7,
    "getHours": lambda at: at.hour,
    "getMinutes": lambda at: at.minute,
    "getSeconds": lambda at: at.second,
    "getMilliseconds": lambda at: at.microsecond // 1000,
}


def _truncated(nanos: int, unit: int) -> int:
    return nanos // unit if nanos >= 0 else -(-nanos // unit)


def _of_timestamp(name: str, read: Callable[[datetime], int]) -> tuple[Overload, Overload]:
    return (
        method(name, (TIMESTAMP,), INT, lambda value: read(_moment(value)), constant(_FIELD_COST)),
        method(
            name,
            (TIMESTAMP, STRING),
            INT,
            lambda value, zone: read(_in_zone(value, zone)),
            constant(_ZONE_COST),
        ),
    )


OVERLOADS: Final = (
    *(overload for name, read in _FIELDS.items() for overload in _of_timestamp(name, read)),
    method("getHours", (DURATION,), INT, lambda d: _truncated(d.nanos, 3600 * 10**9)),
    method("getMinutes", (DURATION,), INT, lambda d: _truncated(d.nanos, 60 * 10**9)),
    method("getSeconds", (DURATION,), INT, lambda d: _truncated(d.nanos, 10**9)),
    method("getMilliseconds", (DURATION,), INT, lambda d: _truncated(d.nanos, 10**6)),
)
