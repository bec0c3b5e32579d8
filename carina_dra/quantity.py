"""Kubernetes quantities: exact numbers that keep the format in which they were written.

The rules are those of apimachinery's `resource.Quantity`: the smallest unit is a billionth, finer
fractions are rounded away from zero, and the canonical text keeps the family of suffixes
(https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/). Quantities are
equal if their numbers are equal. A number is stored as an integer of billionths, so arithmetic is
exact and unbounded. Go's is not; this module differs where Go's results are wrong: beyond 64 bits,
from 10^21 on (which Go writes without a suffix), and in `Value()` and `MilliValue()` of some
negative numbers.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Final

_NANO: Final = 10**9
_LARGEST_BINARY: Final = 2**63 - 1
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
    r"(?P<suffix>[numkMGTPE]?|[KMGTPE]i|[eE][+-]?[0-9]{1,4})",
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

    @classmethod
    def of(cls, number: int, form: Format = Format.BINARY_SI) -> "Quantity":
        """The quantity of an integer, by default in the format for bytes."""
        return cls(number * _NANO, form)

    @classmethod
    def parse(cls, text: str) -> "Quantity":
        """Reads a quantity as Kubernetes does.

        Raises:
            QuantityError: the text is not a quantity.
        """
        return _parse(text)

    def value(self) -> int:
        """The number as an integer, rounded away from zero."""
        return _divide_away(self.nanos, _NANO)

    def milli_value(self) -> int:
        """The number in thousandths, rounded away from zero."""
        return _divide_away(self.nanos, _NANO // 1000)

    def __str__(self) -> str:
        """The canonical text, as the API server writes it after arithmetic."""
        if self.format is Format.BINARY_SI and abs(self.nanos) >= 1024 * _NANO:
            whole, fraction = divmod(self.nanos, _NANO)
            if fraction == 0:
                return _binary(whole)
        return _decimal(self.nanos, self.format)

    def __add__(self, other: "Quantity") -> "Quantity":
        return Quantity(self.nanos + other.nanos, self._joined(other))

    def __sub__(self, other: "Quantity") -> "Quantity":
        return Quantity(self.nanos - other.nanos, self._joined(other))

    def __neg__(self) -> "Quantity":
        return Quantity(-self.nanos, self.format)

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

    def _joined(self, other: "Quantity") -> Format:
        return self.format if self.nanos else other.format


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
    exponent = 9 - len(
        part
    )  # the power of ten by which the digits are multiplied to get billionths
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
    return Quantity(-nanos if sign == "-" else nanos, form)


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
