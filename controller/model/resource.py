"""What queues share: devices of a class, capacities of devices, cpu, memory and pods."""

from collections.abc import Iterable
from dataclasses import dataclass
from operator import add, sub
from typing import Final, TypeAlias, assert_never


@dataclass(frozen=True, slots=True, order=True)
class DevicesOf:
    """The devices that requests for a DeviceClass get, counted."""

    device_class: str


@dataclass(frozen=True, slots=True, order=True)
class CapacityOf:
    """The sum of a capacity of the devices in use, such as the memory of GPUs.

    Of a shared device, what is consumed; of another, all that it has. In base units (bytes for
    memory), rounded up.
    """

    name: str
    """The qualified name, such as `gpu.carina.dev/memory`."""


@dataclass(frozen=True, slots=True, order=True)
class Cpu:
    """The cpu requests of pods, in milli-CPU."""


@dataclass(frozen=True, slots=True, order=True)
class Memory:
    """The memory requests of pods, in bytes."""


@dataclass(frozen=True, slots=True, order=True)
class Pods:
    """The number of pods."""


Resource: TypeAlias = DevicesOf | CapacityOf | Cpu | Memory | Pods

Amounts: TypeAlias = tuple[int, ...]
"""Amounts of the resources that the queues of a cluster name, in the order of their table."""

_DEVICES: Final = "deviceClass "
_CAPACITY: Final = "capacity "


def describe(resource: Resource) -> str:
    """The resource as messages and files name it; `parse_resource` reads it."""
    match resource:
        case DevicesOf(device_class=name):
            return f"{_DEVICES}{name}"
        case CapacityOf(name=name):
            return f"{_CAPACITY}{name}"
        case Cpu():
            return "cpu"
        case Memory():
            return "memory"
        case Pods():
            return "pods"
    assert_never(resource)


def parse_resource(text: str) -> Resource:
    """Reads what `describe` wrote.

    Raises:
        ValueError: the text names no resource.
    """
    plain: dict[str, Resource] = {"cpu": Cpu(), "memory": Memory(), "pods": Pods()}
    if text in plain:
        return plain[text]
    for prefix, kind in ((_DEVICES, DevicesOf), (_CAPACITY, CapacityOf)):
        if text.startswith(prefix) and len(text) > len(prefix):
            return kind(text.removeprefix(prefix))
    raise ValueError(
        f"resource {text!r}: write cpu, memory, pods, `deviceClass NAME` or `capacity DOMAIN/NAME`"
    )


def is_of_devices(resource: Resource) -> bool:
    """Whether claims consume the resource, and not pods themselves."""
    return isinstance(resource, DevicesOf | CapacityOf)


def plus(one: Amounts, other: Amounts) -> Amounts:
    """The sum, resource by resource."""
    return tuple(map(add, one, other))


def minus(one: Amounts, other: Amounts) -> Amounts:
    """The difference, resource by resource."""
    return tuple(map(sub, one, other))


def total(amounts: Iterable[Amounts], size: int) -> Amounts:
    """The sum of amounts of so many resources."""
    result = (0,) * size
    for one in amounts:
        result = plus(result, one)
    return result
