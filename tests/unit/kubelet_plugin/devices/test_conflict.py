"""Which devices cannot be held at the same time."""

import pytest

from kubelet_plugin.devices.conflict import DeviceHold, conflict
from kubelet_plugin.devices.name import parse_name


@pytest.mark.parametrize(
    ("one", "share", "other", "other_share", "together"),
    [
        ("gpu-0", None, "gpu-0", None, False),
        ("gpu-0", None, "gpu-1", None, True),
        ("gpu-0", None, "gpu-0-monitor", None, True),
        ("gpu-0-monitor", None, "gpu-0-monitor", None, True),
        ("gpu-0-monitor", None, "gpu-0-later", None, True),
        ("gpu-0", "a", "gpu-0", "b", False),
        ("gpu-0-mig-1g10gb-19-6", None, "gpu-0-mig-1g10gb-19-6", None, False),
        ("gpu-0-mig-1g10gb-19-6", "a", "gpu-0-mig-1g10gb-19-6", "b", False),
        ("gpu-0-mig-1g10gb-19-6", None, "gpu-0-mig-1g10gb-19-5", None, True),
        ("gpu-0-mig-1g10gb-19-6", None, "gpu-0", None, False),
        ("gpu-0-mig-1g10gb-19-6", "a", "gpu-0-share", "b", False),
        ("gpu-0-share", "a", "gpu-0-share", "b", True),
        ("gpu-0-share", "a", "gpu-0-share", None, False),
        ("gpu-0-share", None, "gpu-0-share", None, False),
        ("gpu-0-share", "a", "gpu-1-share", "b", True),
        ("gpu-0-share", "a", "gpu-0", None, False),
        ("gpu-0-share", "a", "gpu-0", "b", False),
        ("gpu-0-share", "a", "gpu-0-later", None, False),
        ("gpu-0-share", "a", "gpu-0-monitor", None, True),
        ("gpu-0-share", "a", "gpu-1", None, True),
        ("gpu-0", "a", "gpu-0", None, False),
        ("gpu-0", None, "gpu-0-later", None, False),
        ("gpu-0", "a", "gpu-0-later", "b", False),
        ("gpu-0-later", "a", "gpu-0-later", "b", True),
        ("gpu-1", None, "gpu-0-later", None, True),
        ("gpu-0-later", None, "gpu-0-newer", None, False),
        ("nic-0", None, "nic-0", None, False),
        ("nic-0", None, "gpu-0", None, True),
    ],
)
def test_conflicts(
    one: str, share: str | None, other: str, other_share: str | None, together: bool
) -> None:
    first, second = DeviceHold(parse_name(one), share), DeviceHold(parse_name(other), other_share)

    assert conflict(first, second) == conflict(second, first) == (not together)


def test_shares_that_demand_different_time_slices_are_held_together() -> None:
    first = DeviceHold(parse_name("gpu-0-share"), "1", "Short")
    assert not conflict(first, DeviceHold(parse_name("gpu-0-share"), "2", "Long"))
