"""Which limit of memory each device has that an MPS daemon is for."""

import pytest

from carina_dra.config.mps import MpsDeviceError, MpsLimits, limits_of

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


@pytest.mark.parametrize("key", ["2", "-1", "GPU-3", "", "1.0", " 1", "\u0661", "9" * 5000, "a\nb"])
def test_a_limit_of_no_device_is_refused_by_name_with_the_devices(key: str) -> None:
    with pytest.raises(
        MpsDeviceError, match="an index from 0 to 1, or a UUID of GPU-1, GPU-2"
    ) as e:
        limits(**{key: "1Gi"})
    assert str(e.value).isprintable()
    assert len(str(e.value)) < 300
