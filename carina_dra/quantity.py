"""Kubernetes quantities: exact numbers that keep the format in which they were written.

The rules are those of apimachinery's `resource.Quantity`: the smallest unit is a billionth, finer
fractions are rounded away from zero, and the canonical text keeps the family of suffixes
(https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/). Quantities are
equal if their numbers are equal. A number is stored as an integer of billionths, so arithmetic is
exact. Go's is not; this module differs where Go's results are wrong: beyond 64 bits, from 10^21 on
(which Go writes without a suffix), and in `Value()` and `MilliValue()` of some negative numbers.

Quantities come from tenants, so their size is limited: a text has at most 100 characters, and an
exponent at most three digits. Go has no such limits.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Final

_NANO: Final = 10**9
_LARGEST_BINARY: Final = 2**63 - 1
_INT64: Final = range(-(2**63), 2**63)
LONGEST_TEXT: Final = 100
"""The maximal number of characters of a text."""
_MAX_DIGITS: Final = 18
"""Decimal numbers of more digits are not read as 64-bit integers, even if they would fit."""
_MAX_BINARY_DIGITS: Final = 14
"""The same for numbers with a binary suffix, less three digits for each power of 1024."""
_DECIMAL_SUFFIXES: Final[Mapping[str, int]] = {
    "n": -9,
    "u": -6,
    "m": -3,
    "": 0,
    "k": 3,
    "M": 6,
    "G": 9,
    "T": 12,
    "P": 15,
    "E": 18,
}
_DECIMAL_NAMES: Final = {exponent: suffix for suffix, exponent in _DECIMAL_SUFFIXES.items()}
_BINARY_SUFFIXES: Final = ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_TEXT: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<part>[0-9]*))?"
    r"(?P<suffix>[numkMGTPE]?|[KMGTPE]i|[eE][+-]?[0-9]{1,3})",
    re.ASCII,
)


class QuantityError(ValueError):
    """A text that is not a quantity. The message names the text and what is allowed."""


class Format(Enum):
    """A family of suffixes."""

    DECIMAL_SI = "DecimalSI"
    """n u m k M G T P E."""
    BINARY_SI = "BinarySI"
    """Ki Mi Gi Ti Pi Ei."""
    DECIMAL_EXPONENT = "DecimalExponent"
    """e3, e-6."""


@dataclass(frozen=True, slots=True, eq=False)
class Quantity:
    """An amount, such as of bytes or cores.

    A sum or difference has the format of the left operand, or of the right one if the left is zero.
    """

    nanos: int
    """The number, in billionths."""
    format: Format = field(default=Format.BINARY_SI, repr=False)
    scale: int = field(default=0, repr=False)
    """The power of ten of the unit in which Go holds the number."""
    is_wide: bool = field(default=False, repr=False)
    """Whether Go holds it as a big decimal, not as a 64-bit integer."""

    @classmethod
    def of(cls, number: int, form: Format = Format.BINARY_SI) -> "Quantity":
        """The quantity of an integer, by default in the format for bytes."""
        return cls(number * _NANO, form)

    @classmethod
    def parse(cls, text: str) -> "Quantity":
        """Reads a quantity as Kubernetes does.

        Raises:
            QuantityError: the text is not a quantity, or too long.
        """
        if len(text) > LONGEST_TEXT:
            raise QuantityError(
                f"{text[:20]!r}... is too long for a quantity: it has {len(text)} characters, "
                f"and {LONGEST_TEXT} are allowed"
            )
        return _parse(text)

    def value(self) -> int:
        """The number as an integer, rounded away from zero."""
        return _divide_away(self.nanos, _NANO)

    def milli_value(self) -> int:
        """The number in thousandths, rounded away from zero."""
        return _divide_away(self.nanos, _NANO // 1000)

    def as_int64(self) -> int | None:
        """The number, if Go's `AsInt64` gives it: if Go holds it in 64 bits and in whole units.

        It depends on how the quantity was written: `1` and `1e3` have a value; `1000m`, `1.0`,
        `1Pi` and the sum of `500m` and `500m` have none.
        """
        if self.is_wide or self.scale < 0 or self.nanos % _NANO:
            return None
        number = self.nanos // _NANO
        return number if number in _INT64 else None

    def approximate(self) -> float:
        """The number as a double, with the rounding errors of Go's `AsApproximateFloat64`."""
        unscaled = self.nanos * 10 ** max(0, -9 - self.scale) // 10 ** max(0, 9 + self.scale)
        try:
            return float(unscaled) * float(f"1e{self.scale}")
        except OverflowError:
            return math.copysign(math.inf, self.nanos)

    def __str__(self) -> str:
        """The canonical text, as the API server writes it after arithmetic."""
        if self.format is Format.BINARY_SI and abs(self.nanos) >= 1024 * _NANO:
            whole, fraction = divmod(self.nanos, _NANO)
            if fraction == 0:
                return _binary(whole)
        return _decimal(self.nanos, self.format)

    def __add__(self, other: "Quantity") -> "Quantity":
        return self._result(self.nanos + other.nanos, other)

    def __sub__(self, other: "Quantity") -> "Quantity":
        return self._result(self.nanos - other.nanos, other)

    def __neg__(self) -> "Quantity":
        return Quantity(-self.nanos, self.format, self.scale, self.is_wide)

    def __bool__(self) -> bool:
        return self.nanos != 0

    def __eq__(self, other: object) -> bool:
        return self.nanos == other.nanos if isinstance(other, Quantity) else NotImplemented

    def __lt__(self, other: "Quantity") -> bool:
        return self.nanos < other.nanos

    def __le__(self, other: "Quantity") -> bool:
        return self.nanos <= other.nanos

    def __gt__(self, other: "Quantity") -> bool:
        return self.nanos > other.nanos

    def __ge__(self, other: "Quantity") -> bool:
        return self.nanos >= other.nanos

    def __hash__(self) -> int:
        return hash(self.nanos)

    def _result(self, nanos: int, other: "Quantity") -> "Quantity":
        """A sum or difference, held as Go holds it."""
        form = self.format if self.nanos else other.format
        if self.is_wide or other.is_wide:
            return Quantity(nanos, form, min(self.scale, other.scale), is_wide=True)
        if not other.nanos:
            return Quantity(nanos, form, self.scale)
        if not self.nanos:
            return Quantity(nanos, form, other.scale)
        scale = min(self.scale, other.scale)
        unit = 10 ** (9 + scale)
        fits = all(amount // unit in _INT64 for amount in (self.nanos, other.nanos, nanos))
        return Quantity(nanos, form, scale, is_wide=not fits)


@lru_cache(maxsize=4096)
def _parse(text: str) -> Quantity:
    match = _TEXT.fullmatch(text)
    if match is None or not text:
        raise QuantityError(
            f"{text!r} is not a quantity; write a number with an optional suffix, one of "
            "n u m k M G T P E Ki Mi Gi Ti Pi Ei, or an exponent such as e3"
        )
    sign, whole, part, suffix = match.group("sign", "whole", "part", "suffix")
    part = part or ""
    digits = int((whole + part) or "0")
    # The power of ten by which the digits are multiplied to get billionths.
    exponent = 9 - len(part)
    if suffix in _BINARY_SUFFIXES:
        form = Format.BINARY_SI
        digits <<= 10 * (_BINARY_SUFFIXES.index(suffix) + 1)
    elif suffix in _DECIMAL_SUFFIXES:
        form = Format.DECIMAL_SI
        exponent += _DECIMAL_SUFFIXES[suffix]
    else:
        form = Format.DECIMAL_EXPONENT
        exponent += int(suffix[1:])
    nanos = digits * 10**exponent if exponent >= 0 else _divide_away(digits, 10**-exponent)
    if form is Format.BINARY_SI:
        nanos = min(nanos, _LARGEST_BINARY * _NANO)
        form = Format.DECIMAL_SI if 0 < nanos < _NANO else form
    scale, is_wide = _held(whole, part, suffix, exponent - 9, nanos)
    return Quantity(-nanos if sign == "-" else nanos, form, scale, is_wide)


def _held(whole: str, part: str, suffix: str, scale: int, nanos: int) -> tuple[int, bool]:
    """How Go holds what it has read: the power of ten of the unit, and whether it is wide.

    scale: the power of ten of the last digit that is written.
    """
    if not whole.strip("0") and not part and not suffix:
        return 0, False
    length = len(whole.lstrip("0") or "0") + len(part)
    if suffix in _BINARY_SUFFIXES:
        power = _BINARY_SUFFIXES.index(suffix) + 1
        is_wide = bool(part) or length > _MAX_BINARY_DIGITS - 3 * power
    else:
        is_wide = length > _MAX_DIGITS or scale < -9
    if is_wide:
        return (-9 if nanos else scale), True
    return scale, False


def _divide_away(number: int, divisor: int) -> int:
    """The quotient, rounded away from zero."""
    return -(-number // divisor) if number >= 0 else number // divisor


def _binary(whole: int) -> str:
    power = 0
    while power < len(_BINARY_SUFFIXES) and whole % 1024 == 0:
        whole //= 1024
        power += 1
    return f"{whole}{_BINARY_SUFFIXES[power - 1] if power else ''}"


def _decimal(nanos: int, form: Format) -> str:
    exponent, most = -9, None if form is Format.DECIMAL_EXPONENT else 18
    while nanos and nanos % 1000 == 0 and exponent != most:
        nanos //= 1000
        exponent += 3
    if nanos == 0:
        return "0"
    if form is Format.DECIMAL_EXPONENT:
        return f"{nanos}e{exponent}" if exponent else f"{nanos}"
    return f"{nanos}{_DECIMAL_NAMES[exponent]}"
