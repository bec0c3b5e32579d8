"""What configurations demand."""

from typing import Any

import pytest

from carina_dra.config.device import API_VERSION, time_slice
from carina_dra.config.reading import parse_device_config

SHARE = {"apiVersion": API_VERSION, "kind": "ShareConfig"}
GOOD = {"apiVersion": API_VERSION, "kind": "GpuConfig"}


def _time_slicing(interval: str) -> dict[str, Any]:
    return {"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": interval}}


@pytest.mark.parametrize(
    ("parameters", "interval"),
    [
        (GOOD, None),
        ({**GOOD, "sharing": {"strategy": "TimeSlicing"}}, "Default"),
        ({**GOOD, "sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {}}}, "Default"),
        ({**GOOD, "sharing": _time_slicing("Medium")}, "Medium"),
        ({**GOOD, "kind": "MigDeviceConfig", "sharing": {"strategy": "TimeSlicing"}}, None),
        (SHARE, None),
        ({**SHARE, "timeSlicing": {}}, None),
        ({**SHARE, "timeSlicing": {"interval": "Long"}}, "Long"),
    ],
)
def test_time_slices_that_a_configuration_demands(
    parameters: dict[str, Any], interval: str | None
) -> None:
    assert time_slice(parse_device_config("config[0]", parameters)) == interval
