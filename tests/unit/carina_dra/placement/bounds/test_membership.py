"""Which devices a class selects, whatever was asked of other devices before."""

from typing import Any
from unittest.mock import patch

import pytest

from carina_dra.cel import Selector
from carina_dra.placement.bounds.membership import Membership
from carina_dra.resource import Device, DeviceClass, decode

_DRIVER = "gpu.example.com"
_OWN = f'device.attributes["{_DRIVER}"]'


def _class(*selectors: str) -> DeviceClass:
    body = [{"cel": {"expression": expression}} for expression in selectors]
    return decode(DeviceClass, {"metadata": {"name": "x"}, "spec": {"selectors": body}})


def _device(name: str = "gpu-0", memory: str = "80Gi", **attributes: Any) -> Device:
    body = {
        "name": name,
        "attributes": attributes,
        "capacity": {"memory": {"value": memory}},
    }
    return decode(Device, body)


_PLAIN = _device(model={"string": "A"}, index={"int": 0}, version={"version": "1.0.0"})


@pytest.mark.parametrize(
    ("selector", "other"),
    [
        (f'{_OWN}.model == "A"', _device(model={"string": "B"})),
        (
            f'device.capacity["{_DRIVER}"].memory.compareTo(quantity("80Gi")) == 0',
            _device("x", "1"),
        ),
        (
            "!device.allowMultipleAllocations",
            decode(Device, {"name": "x", "allowMultipleAllocations": True}),
        ),
        (f'device.driver == "{_DRIVER}"', _device(version={"version": "not one"})),
        (f"{_OWN}.map(name, name).size() == 3", _device(model={"string": "A"})),
    ],
)
def test_devices_are_told_apart_by_all_that_selectors_see_of_them(
    selector: str, other: Device
) -> None:
    members = Membership(_class(selector))

    assert [members.has(one, _DRIVER) for one in (_PLAIN, other, _PLAIN)] == [True, False, True]


def test_devices_of_other_drivers_are_told_apart() -> None:
    members = Membership(_class(f'device.driver == "{_DRIVER}"'))

    assert [members.has(_PLAIN, driver) for driver in (_DRIVER, "other")] == [True, False]


def test_a_class_that_does_not_compile_selects_nothing() -> None:
    assert not Membership(_class("device.")).has(_PLAIN, _DRIVER)


def test_of_devices_that_differ_only_in_what_is_not_read_one_is_evaluated() -> None:
    members = Membership(_class(f'{_OWN}.model == "A"'))

    with patch.object(Selector, "matches", autospec=True, return_value=True) as matches:
        for index in range(8):
            members.has(
                _device(f"gpu-{index}", model={"string": "A"}, index={"int": index}), _DRIVER
            )

    assert matches.call_count == 1
