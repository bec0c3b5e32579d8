"""Which limit of memory each device has that an MPS daemon is for."""

import pytest
from pydantic import ValidationError

from carina_dra.config.mps import MpsDeviceError, MpsLimits, limits_of, mebibytes

FIRST, SECOND = "GPU-1", "GPU-2"


def limits(default: str | None = None, **by_device: str) -> dict[str, int | None]:
    written = {
        "defaultPinnedDeviceMemoryLimit": default,
        "defaultPerDevicePinnedMemoryLimit": by_device or None,
    }
    return dict(limits_of(MpsLimits.model_validate(written), [SECOND, FIRST]))


def test_without_a_limit_a_process_can_have_all() -> None:
    assert limits() == {FIRST: None, SECOND: None}


def test_the_default_is_for_each_device() -> None:
    assert limits("10Gi") == {FIRST: 10240, SECOND: 10240}


@pytest.mark.parametrize("key", ["1", "01", "+1", SECOND])
def test_the_limit_of_a_device_replaces_the_default_and_indices_are_those_of_sorted_uuids(
    key: str,
) -> None:
    assert limits("10Gi", **{key: "1Gi"}) == {FIRST: 10240, SECOND: 1024}


def test_a_limit_by_uuid_counts_more_than_by_index() -> None:
    for keys in ([FIRST, "0"], ["0", FIRST]):
        by_device = {key: "1Gi" if key == FIRST else "2Gi" for key in keys}
        assert limits(**by_device) == {FIRST: 1024, SECOND: None}


@pytest.mark.parametrize(
    ("written", "mib"),
    [
        (2**20, 1),
        ("1Mi", 1),
        (2**21 - 1, 1),
        ("2M", 1),
        ("1e30", 2**43 - 1),
        (2**63, 2**43 - 1),
    ],
    ids=str,
)
def test_a_limit_is_in_whole_mib_and_at_most_what_a_driver_reads(
    written: str | int, mib: int
) -> None:
    assert mebibytes(written) == mib


@pytest.mark.parametrize("written", [True, None, 1.5, 2**20 - 1, "1023Ki", "-1Gi", "much", ""])
def test_what_is_no_limit_is_refused_with_the_remedy(written: object) -> None:
    with pytest.raises(ValueError, match="write a quantity of at least 1Mi"):
        mebibytes(written)


@pytest.mark.parametrize("percentage", [0, 101, "50", 1.0, True], ids=repr)
def test_a_percentage_is_a_number_from_1_to_100(percentage: object) -> None:
    with pytest.raises(ValidationError, match="defaultActiveThreadPercentage"):
        MpsLimits.model_validate({"defaultActiveThreadPercentage": percentage})


@pytest.mark.parametrize("percentage", [None, 1, 100])
def test_the_least_and_the_largest_percentage(percentage: int | None) -> None:
    found = MpsLimits.model_validate({"defaultActiveThreadPercentage": percentage})
    assert found.defaultActiveThreadPercentage == percentage


def test_a_field_that_is_not_known_is_refused() -> None:
    with pytest.raises(ValidationError, match="defaultThreadPercentage"):
        MpsLimits.model_validate({"defaultThreadPercentage": 50})


def test_limits_do_not_change() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        MpsLimits().defaultActiveThreadPercentage = 1


def test_of_many_devices_four_are_named() -> None:
    config = MpsLimits.model_validate({"defaultPerDevicePinnedMemoryLimit": {"x": "1Gi"}})
    shown = "GPU-0, GPU-1, GPU-2, GPU-3"
    for count, ending in ((4, shown), (5, f"{shown}, ...")):
        with pytest.raises(MpsDeviceError) as caught:
            limits_of(config, [f"GPU-{number}" for number in range(count)])
        assert str(caught.value).endswith(f"a UUID of {ending}")


@pytest.mark.parametrize("key", ["2", "-1", "GPU-3", "", "1.0", " 1", "\u0661", "9" * 5000, "a\nb"])
def test_a_limit_of_no_device_is_refused_by_name_with_the_devices(key: str) -> None:
    with pytest.raises(
        MpsDeviceError, match="an index from 0 to 1, or a UUID of GPU-1, GPU-2"
    ) as e:
        limits(**{key: "1Gi"})
    assert str(e.value).isprintable()
    assert len(str(e.value)) < 300
