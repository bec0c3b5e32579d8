"""The names under which pods ask for devices of a DeviceClass without a claim (KEP-5004)."""

from collections.abc import Iterable
from typing import Final

from carina_dra.resource import DeviceClass

IMPLICIT: Final = "deviceclass.resource.kubernetes.io/"
"""How the names begin that every DeviceClass has, with its own name after it."""


def classes_by_resource(classes: Iterable[DeviceClass]) -> dict[str, str]:
    """The class for each extended resource, by name.

    Of several classes that name the same, kube-scheduler takes the newest, and of equally old ones
    the first by name.
    """
    found: dict[str, str] = {}
    ordered = sorted(classes, key=lambda known: known.metadata.name, reverse=True)
    for device_class in sorted(ordered, key=_created):
        if device_class.spec.extended_resource_name:
            found[device_class.spec.extended_resource_name] = device_class.metadata.name
    for device_class in ordered:
        found[IMPLICIT + device_class.metadata.name] = device_class.metadata.name
    return found


def _created(device_class: DeviceClass) -> float:
    stamp = device_class.metadata.creation_timestamp
    return 0.0 if stamp is None else stamp.timestamp()
