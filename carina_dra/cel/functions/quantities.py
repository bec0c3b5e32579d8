"""Quantities and semantic versions (apiserver `library/quantity.go`, `library/semverlib.go`)."""

import re
from functools import lru_cache
from typing import Final

from carina_dra.cel.errors import EvaluationError
from carina_dra.cel.functions.cost import comparison, constant, membership
from carina_dra.cel.functions.overload import function, method
from carina_dra.cel.types import BOOL, DOUBLE, DYN, INT, QUANTITY, SEMVER, STRING
from carina_dra.cel.values import Semver, Value, is_same, shown
from carina_dra.quantity import Quantity, QuantityError

_COMPARE: Final = constant(20)
_CALCULATE: Final = constant(10)
_LONGEST: Final = 256
"""The maximal number of characters of a version. Go has no limit."""
_NUMBER: Final = r"(?:0|[1-9][0-9]*)"
_PART: Final = r"(?:0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)"
_SEMVER: Final = re.compile(
    rf"(?P<major>{_NUMBER})\.(?P<minor>{_NUMBER})\.(?P<patch>{_NUMBER})"
    rf"(?:-(?P<prerelease>{_PART}(?:\.{_PART})*))?(?:\+(?P<build>[0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*))?",
    re.ASCII,
)
_LOOSE: Final = re.compile(r"v?(?P<numbers>[0-9]+(?:\.[0-9]+){0,2})(?P<rest>[-+].*)?", re.ASCII)
_PARTS: Final = 3
_UINT64_MAX: Final = 2**64 - 1


@lru_cache(maxsize=1024)
def quantity(text: str) -> Quantity:
    """Parses a quantity.

    Raises:
        EvaluationError: the text is not a quantity.
    """
    try:
        return Quantity.parse(text)
    except QuantityError as error:
        raise EvaluationError(str(error)) from None


@lru_cache(maxsize=1024)
def semver(text: str) -> Semver:
    """Parses a semantic version.

    Raises:
        EvaluationError: the text is not a semantic version.
    """
    match = _SEMVER.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise EvaluationError(f"{shown(text)} is not a semantic version")
    numbers = [int(match[name]) for name in ("major", "minor", "patch")]
    if max(numbers) > _UINT64_MAX:
        raise EvaluationError(f"{shown(text)} is not a semantic version")
    prerelease = tuple(match["prerelease"].split(".")) if match["prerelease"] else ()
    build = tuple(match["build"].split(".")) if match["build"] else ()
    return Semver(numbers[0], numbers[1], numbers[2], prerelease, build)


def _normalized(text: str, normalize: bool) -> Semver:  # noqa: FBT001 - an argument
    """Parses a version. `normalize` removes `v` and leading zeros, and adds missing numbers."""
    match = _LOOSE.fullmatch(text) if normalize and len(text) <= _LONGEST else None
    if match is None:
        return semver(text)
    numbers = [number.lstrip("0") or "0" for number in match["numbers"].split(".")]
    if len(numbers) < _PARTS and match["rest"]:
        raise EvaluationError("short version cannot contain PreRelease/Build meta data")
    numbers += ["0"] * (_PARTS - len(numbers))
    return semver(".".join(numbers) + (match["rest"] or ""))


def _is(read: object, *arguments: Value) -> bool:
    try:
        read(*arguments)  # type: ignore[operator]
    except EvaluationError:
        return False
    return True


def _as_integer(value: Quantity) -> int:
    number = value.as_int64()
    if number is None:
        raise EvaluationError("cannot convert value to integer")
    return number


def _sign(value: Quantity) -> int:
    return (value.nanos > 0) - (value.nanos < 0)


def _compare(left: Quantity, right: Quantity) -> int:
    return (left.nanos > right.nanos) - (left.nanos < right.nanos)


def _is_newer(left: Semver, right: Semver) -> bool:
    return left.precedence > right.precedence


def _is_older(left: Semver, right: Semver) -> bool:
    return left.precedence < right.precedence


def _compare_versions(left: Semver, right: Semver) -> int:
    return (left.precedence > right.precedence) - (left.precedence < right.precedence)


def _includes(attribute: Value, value: Value) -> bool:
    """Whether an attribute equals the value, or is a list that contains it (DRA)."""
    if isinstance(attribute, tuple):
        return any(is_same(element, value) for element in attribute)
    return is_same(attribute, value)


def _parsing(text: str, _: bool = False) -> int:  # noqa: FBT001, FBT002 - an argument
    """The cost of parsing; longer texts are refused."""
    return 20 + min(len(text), _LONGEST)


def _includes_cost(attribute: Value, value: Value) -> int:
    if isinstance(attribute, tuple):
        return membership(value, attribute)
    return comparison(attribute, value)


OVERLOADS: Final = (
    function("quantity", (STRING,), QUANTITY, quantity, _parsing),
    function("isQuantity", (STRING,), BOOL, lambda text: _is(quantity, text), _parsing),
    function("sign", (QUANTITY,), INT, _sign),
    method("isInteger", (QUANTITY,), BOOL, lambda value: value.as_int64() is not None, _CALCULATE),
    method("asInteger", (QUANTITY,), INT, _as_integer, _CALCULATE),
    method(
        "asApproximateFloat", (QUANTITY,), DOUBLE, lambda value: value.approximate(), _CALCULATE
    ),
    method("isGreaterThan", (QUANTITY, QUANTITY), BOOL, lambda a, b: a.nanos > b.nanos),
    method("isLessThan", (QUANTITY, QUANTITY), BOOL, lambda a, b: a.nanos < b.nanos),
    method("compareTo", (QUANTITY, QUANTITY), INT, _compare),
    method("add", (QUANTITY, QUANTITY), QUANTITY, lambda a, b: a + b, _CALCULATE),
    method("add", (QUANTITY, INT), QUANTITY, lambda a, b: a + Quantity.of(b, a.format), _CALCULATE),
    method("sub", (QUANTITY, QUANTITY), QUANTITY, lambda a, b: a - b, _CALCULATE),
    method("sub", (QUANTITY, INT), QUANTITY, lambda a, b: a - Quantity.of(b, a.format), _CALCULATE),
    function("semver", (STRING,), SEMVER, semver, _parsing),
    function("semver", (STRING, BOOL), SEMVER, _normalized, _parsing),
    function("isSemver", (STRING,), BOOL, lambda text: _is(semver, text), _parsing),
    function("isSemver", (STRING, BOOL), BOOL, lambda *given: _is(_normalized, *given), _parsing),
    method("isGreaterThan", (SEMVER, SEMVER), BOOL, _is_newer, _COMPARE),
    method("isLessThan", (SEMVER, SEMVER), BOOL, _is_older, _COMPARE),
    method("compareTo", (SEMVER, SEMVER), INT, _compare_versions, _COMPARE),
    method("major", (SEMVER,), INT, lambda version: version.major),
    method("minor", (SEMVER,), INT, lambda version: version.minor),
    method("patch", (SEMVER,), INT, lambda version: version.patch),
    method("includes", (DYN, DYN), BOOL, _includes, _includes_cost),
)
