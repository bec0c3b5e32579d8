"""What XIDs mean: the tables of NVIDIA's catalogue, and how the settings change them."""

import pytest

from kubelet_plugin.inventory.xid import XidRules, catalogued, is_benign, text
from kubelet_plugin.inventory.xid_catalogue import CATALOGUE, LAST, XidSeverity
from tests.samples.gpus import gpu

ARCHITECTURES = {"A": ("Ampere", "Ada Lovelace"), "H": ("Hopper",), "B": ("Blackwell", "Rubin")}


def xids(spans: str) -> list[int]:
    numbers: list[int] = []
    for span in spans.split(","):
        first, _, last = span.strip().partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


TABLE: dict[XidSeverity, list[tuple[str, str]]] = {
    XidSeverity.APPLICATION: [
        ("AH", "8, 11, 25, 32, 69, 80"),
        ("AHB", "13, 31, 39-41, 60, 68, 70-72, 75-77, 85, 94"),
        ("HB", "82-84, 88, 89, 96-105"),
        ("B", "86, 126-135, 139"),
    ],
    XidSeverity.IGNORE: [
        ("AHB", "14, 37, 38, 43-45, 63, 66, 67, 92, 106-108, 137, 152, 153, 157, 162-166"),
        ("A", "93"),
        ("HB", "141"),
        ("B", "121, 144-150, 160, 161"),
    ],
    XidSeverity.RESET: [
        ("AHB", "46, 48, 62, 64, 95, 109, 119, 120, 140, 158"),
        ("AH", "74"),
        ("HB", "110, 143, 156, 167, 169"),
        ("H", "136"),
        ("B", "155"),
    ],
    XidSeverity.REBOOT: [("AHB", "79"), ("HB", "151")],
    XidSeverity.DRAIN: [("AHB", "54")],
    XidSeverity.REPLACE: [("B", "142")],
    XidSeverity.DEGRADED: [
        ("AHB", "1-7, 9, 10, 12, 15-24, 26-30, 33-36, 42, 47, 49-53, 55-59, 61, 65, 73, 78, 81"),
        ("AHB", "87, 90, 91, 111-118, 122-125, 138, 168"),
    ],
}
CASES = [
    pytest.param(xid, architecture, severity, id=f"{xid} on {architecture}: {severity}")
    for severity, rows in TABLE.items()
    for letters, spans in rows
    for letter in letters
    for architecture in ARCHITECTURES[letter]
    for xid in xids(spans)
]


@pytest.mark.parametrize(("xid", "architecture", "severity"), CASES)
def test_the_catalogue(xid: int, architecture: str, severity: XidSeverity) -> None:
    assert catalogued(xid, architecture) is severity


@pytest.mark.parametrize("architecture", ["Ampere", "Hopper", "Blackwell"])
def test_what_an_architecture_does_not_use_is_looked_at_and_keeps_nobody_out(
    architecture: str,
) -> None:
    letter = next(key for key, names in ARCHITECTURES.items() if architecture in names)
    used = {xid for row in CATALOGUE if letter in row.architectures for xid in row.numbers}
    unused = set(range(1, LAST + 1)) - used

    assert {catalogued(xid, architecture) for xid in unused} == {XidSeverity.DEGRADED}


@pytest.mark.parametrize("xid", [185, 999, 0, 1000])
def test_an_unknown_number_keeps_new_work_out_and_evicts_nobody(xid: int) -> None:
    assert catalogued(xid, "Hopper") is XidSeverity.DRAIN


@pytest.mark.parametrize("xid", xids("8, 11, 13, 31, 32, 43, 45, 68, 69, 80, 94"))
@pytest.mark.parametrize("architecture", ["Turing", "Volta", "Pascal", "Maxwell", "Kepler"])
def test_older_gpus_keep_working_after_the_errors_of_applications(
    xid: int, architecture: str
) -> None:
    assert is_benign(catalogued(xid, architecture))


@pytest.mark.parametrize("xid", [9, 87])
def test_what_the_catalogue_does_not_say_of_older_gpus_is_unknown(xid: int) -> None:
    assert catalogued(xid, "Turing") is XidSeverity.DRAIN


def test_no_number_has_two_meanings_on_an_architecture() -> None:
    for letter in ARCHITECTURES:
        numbers = [xid for row in CATALOGUE if letter in row.architectures for xid in row.numbers]
        assert len(numbers) == len(set(numbers))


def test_the_settings_move_and_add_xids() -> None:
    rules = XidRules({63: XidSeverity.REPLACE, 185: XidSeverity.IGNORE})

    assert rules.severity(63, gpu(0)) is XidSeverity.REPLACE
    assert rules.severity(185, gpu(0)) is XidSeverity.IGNORE
    assert rules.severity(95, gpu(0)) is XidSeverity.RESET


def test_the_settings_move_xids_of_a_product() -> None:
    rules = XidRules(
        {109: XidSeverity.DRAIN},
        {
            "NVIDIA A100*": {109: XidSeverity.APPLICATION},
            "NVIDIA *": {109: XidSeverity.REBOOT, 31: XidSeverity.DEGRADED},
        },
    )
    a100, l40s = gpu(0, product_name="NVIDIA A100-SXM4-80GB"), gpu(1)
    unnamed = gpu(2, product_name=None)

    assert rules.severity(109, a100) is XidSeverity.APPLICATION
    assert rules.severity(31, a100) is XidSeverity.DEGRADED
    assert rules.severity(109, l40s) is XidSeverity.REBOOT
    assert rules.severity(109, unnamed) is XidSeverity.DRAIN


def test_an_xid_is_named_with_what_it_is() -> None:
    assert text(95) == "XID 95 (an uncontained memory error)"
    assert text(4) == "XID 4"
