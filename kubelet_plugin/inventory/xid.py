"""What an XID means on a GPU: the catalogue, as the settings change it.

An XID is a number with which the driver reports an error. The catalogue describes Ampere and newer;
on older GPUs the same errors of applications have the same numbers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from typing import Final

from kubelet_plugin.inventory.gpu import Gpu
from kubelet_plugin.inventory.xid_catalogue import CATALOGUE, LAST, XidRow, XidSeverity

_LETTERS: Final[Mapping[str, str]] = {
    "Ampere": "A",
    "Ada Lovelace": "A",
    "Hopper": "H",
    "Kepler": "",
    "Maxwell": "",
    "Pascal": "",
    "Volta": "",
    "Turing": "",
}
_NEWEST: Final = "B"
_BENIGN: Final = frozenset({XidSeverity.IGNORE, XidSeverity.APPLICATION})


@dataclass(frozen=True, slots=True)
class XidRules:
    """The catalogue with what the settings move and add."""

    moved: Mapping[int, XidSeverity] = field(default_factory=dict)
    by_product: Mapping[str, Mapping[int, XidSeverity]] = field(default_factory=dict)
    """By patterns of product names, such as "NVIDIA A100*". The first that matches counts."""

    def severity(self, xid: int, gpu: Gpu) -> XidSeverity:
        """Returns the severity of an XID on a GPU."""
        for pattern, moved in self.by_product.items():
            if xid in moved and fnmatchcase(gpu.product_name or "", pattern):
                return moved[xid]
        return self.moved.get(xid) or catalogued(xid, gpu.architecture)


def catalogued(xid: int, architecture: str | None) -> XidSeverity:
    """Returns the severity of an XID by the catalogue alone."""
    letter = _LETTERS.get(architecture or "", _NEWEST)
    rows = _rows().get(xid, ())
    for row in rows:
        if letter in row.architectures if letter else True:
            return row.severity
    # The driver of an older GPU reports the same errors of applications.
    if not letter or xid > LAST or xid < 1:
        return XidSeverity.DRAIN
    return XidSeverity.DEGRADED


def text(xid: int) -> str:
    """Returns what an XID is, such as "XID 13 (an exception in a graphics engine)"."""
    rows = _rows().get(xid, ())
    return f"XID {xid} ({rows[0].text})" if rows else f"XID {xid}"


def is_benign(severity: XidSeverity) -> bool:
    """Returns whether the GPU is well after an XID of this severity."""
    return severity in _BENIGN


@cache
def _rows() -> Mapping[int, tuple[XidRow, ...]]:
    rows: dict[int, tuple[XidRow, ...]] = {}
    for row in CATALOGUE:
        for number in row.numbers:
            rows[number] = (*rows.get(number, ()), row)
    return rows
