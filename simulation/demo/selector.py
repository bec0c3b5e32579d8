"""The CEL expressions of deploy/, and no others.

This is no CEL: it knows the four comparisons below, joined by `&&`, and refuses everything else, so
that the demo never takes a selector for satisfied that it has not understood.

    device.driver == 'D'
    device.attributes['D'].N == 'S'
    device.attributes['D'].N.contains('S')
    device.capacity['D'].N.compareTo(quantity('Q')) >= 0
"""

import re

from carina_dra.quantity import Quantity
from carina_dra.resource import Device, DeviceSelector, StringAttribute
from carina_dra.resource.attribute import lookup

_DRIVER = re.compile(r"device\.driver == '([^']*)'")
_EQUAL = re.compile(r"device\.attributes\['([^']*)'\]\.(\w+) == '([^']*)'")
_CONTAINS = re.compile(r"device\.attributes\['([^']*)'\]\.(\w+)\.contains\('([^']*)'\)")
_AT_LEAST = re.compile(
    r"device\.capacity\['([^']*)'\]\.(\w+)\.compareTo\(quantity\('([^']*)'\)\) >= 0"
)


class SelectorError(Exception):
    """An expression that is not understood, or asks for what a device does not have."""


def selects(selector: DeviceSelector, device: Device, driver: str) -> bool:
    """Whether a device of a driver satisfies the selector.

    Raises:
        SelectorError: it cannot be told.
    """
    if selector.cel is None:
        raise SelectorError("the demo knows CEL selectors only")
    terms = selector.cel.expression.split("&&")
    return all(_holds(term.strip(), device, driver) for term in terms)


def _holds(term: str, device: Device, driver: str) -> bool:
    if match := _DRIVER.fullmatch(term):
        return driver == match[1]
    if match := _EQUAL.fullmatch(term):
        return _text(device, driver, f"{match[1]}/{match[2]}") == match[3]
    if match := _CONTAINS.fullmatch(term):
        return match[3] in _text(device, driver, f"{match[1]}/{match[2]}")
    if match := _AT_LEAST.fullmatch(term):
        capacity = lookup(device.capacity, f"{match[1]}/{match[2]}", driver)
        if capacity is None:
            raise SelectorError(f"{device.name} has no capacity {match[2]}: {term}")
        return capacity.value >= Quantity.parse(match[3])
    raise SelectorError(
        f"{term!r} is none of the few expressions that the demo's scheduler knows; "
        "kube-scheduler knows all of CEL: make demo CLUSTER=real"
    )


def _text(device: Device, driver: str, name: str) -> str:
    attribute = lookup(device.attributes, name, driver)
    if not isinstance(attribute, StringAttribute):
        raise SelectorError(f"{device.name} has no text {name}")
    return attribute.value
