"""Selectors that cost an attempt much."""

from carina_dra.resource import CelSelector, DeviceSelector

_TEN = "[0,1,2,3,4,5,6,7,8,9]"


def costly(text: str) -> DeviceSelector:
    """A selector that takes 9,000 units of CEL's cost on each device, and selects all."""
    body = f"device.driver != '{text}'"
    for number in range(3):
        body = f"{_TEN}.all(x{number}, {body})"
    return DeviceSelector(CelSelector(body))
