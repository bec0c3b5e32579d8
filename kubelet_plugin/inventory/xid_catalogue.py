"""NVIDIA's XID catalogue, as data: what each number means for the GPU and its devices.

Source: NVIDIA, "XID Errors", catalogue of release 610 for Ampere and newer, and for the severities
the immediate action that it names. Numbers that it has without an action for an architecture are
unused there.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class XidSeverity(StrEnum):
    """What follows from an XID where the driver has no recovery action, the least first."""

    IGNORE = "ignore"
    """Nothing; the metric counts it."""
    APPLICATION = "application"
    """The application failed, and the GPU is well: an Event."""
    DEGRADED = "degraded"
    """A taint without effect."""
    DRAIN = "drain"
    """No new work; what runs may finish."""
    RESET = "reset"
    REBOOT = "reboot"
    REPLACE = "replace"
    """No new work until an administrator clears it."""


@dataclass(frozen=True, slots=True)
class XidRow:
    """Some XIDs of the catalogue."""

    numbers: frozenset[int]
    severity: XidSeverity
    text: str
    """What it is, in words that continue "XID 13: "."""
    architectures: str = "AHB"
    """Where the numbers are used: A (Ampere, Ada), H (Hopper), B (Blackwell and newer)."""


def _numbers(text: str) -> frozenset[int]:
    """Returns the numbers of "1-3, 5"."""
    parts = (part.strip().partition("-") for part in text.split(","))
    return frozenset(
        number for first, _, last in parts for number in range(int(first), int(last or first) + 1)
    )


def _rows(
    severity: XidSeverity, *rows: tuple[str, str] | tuple[str, str, str]
) -> tuple[XidRow, ...]:
    return tuple(XidRow(_numbers(numbers), severity, *rest) for numbers, *rest in rows)


CATALOGUE: Final[tuple[XidRow, ...]] = (
    *_rows(
        XidSeverity.APPLICATION,
        ("8, 11, 25, 32, 69, 80", "an error of a channel or its push buffer", "AH"),
        ("13", "an exception in a graphics engine, such as an access out of bounds"),
        ("31", "a fault of the memory management unit"),
        ("39-41, 70-72, 75-77, 85", "an error of a copy engine"),
        ("126-135", "an error of a copy engine", "B"),
        ("60", "an error of the security engine"),
        ("68", "an error of a video decoder"),
        ("83, 84, 88, 89, 96-98", "an error of a video decoder", "HB"),
        ("82, 99-105", "an error of a JPEG decoder", "HB"),
        ("86, 139", "an error of an optical flow engine", "B"),
        ("94", "a contained memory error, which ends one application or one MIG instance"),
    ),
    *_rows(
        XidSeverity.IGNORE,
        ("14", "an error that a program has injected"),
        ("37, 38", "an error of the driver's firmware"),
        ("43", "the channel of an application was reset"),
        ("44, 66, 67", "a fault of a context"),
        ("45", "the cleanup after another fault or a killed process"),
        ("63", "a row of memory is remapped or a page retired"),
        ("92", "many corrected memory errors"),
        ("93", "a write to the inforom", "A"),
        ("106, 107", "a message of a test"),
        ("108", "an event of the driver"),
        ("121", "corrected errors of the link between CPU and GPU", "B"),
        ("137", "an illegal access of an application to a peer"),
        ("141", "an event of the driver", "HB"),
        ("152, 153", "an event of the driver"),
        ("157", "no spare resource is left"),
        ("160, 161", "a repair is pending", "B"),
        ("162-166", "an event of power smoothing or confidential computing"),
        ("144-150", "an error of NVLink, of which only the recovery action tells the remedy", "B"),
    ),
    *_rows(
        XidSeverity.RESET,
        ("46", "an engine timed out"),
        ("48", "an uncorrectable memory error"),
        ("62", "the power management unit halted"),
        ("64", "a row of memory could not be remapped or a page not retired"),
        ("74", "an error of NVLink", "AH"),
        ("95", "an uncontained memory error"),
        ("109", "a context switch timed out"),
        ("110", "a security fault", "HB"),
        ("119", "the GPU system processor timed out"),
        ("120", "an error of the GPU system processor"),
        ("136", "the training of a link failed", "H"),
        ("140", "a memory error escaped containment"),
        ("143", "the GPU was not initialised", "HB"),
        ("155", "an error of software-defined NVLink", "B"),
        ("156", "a resource is retired", "HB"),
        ("158", "a fatal timeout"),
        ("167", "a fatal timeout of PCIe", "HB"),
        ("169", "the security engine halted", "HB"),
    ),
    *_rows(
        XidSeverity.REBOOT,
        ("79", "the GPU fell off the bus"),
        ("151", "a key rotation failed", "HB"),
    ),
    *_rows(XidSeverity.DRAIN, ("54", "the auxiliary power is not connected")),
    *_rows(XidSeverity.REPLACE, ("142", "an error of a video encoder", "B")),
    *_rows(
        XidSeverity.DEGRADED,
        ("78", "a virtual GPU did not start"),
        ("159", "an error of the coherent interface", "B"),
        ("168", "the GPU works with less memory"),
        ("170-172", "which memory had an error"),
    ),
)
BY_ACTION_ONLY: Final = frozenset(range(144, 151))
"""Errors of NVLink whose remedy only the recovery action tells: no taint follows from them."""
LAST: Final = 172
"""The last number of the catalogue."""
CONTAINED: Final = frozenset({94})
"""Concern only the GPU instance that the driver names, if it names one (open-gpu-kernel-modules,
error containment)."""
DECISIVE: Final = frozenset({79})
"""Count also where the driver has a recovery action, which a GPU off the bus cannot give."""
