"""What queues share: GPUs, devices of a class, capacities of devices, cpu, memory and pods."""

from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from operator import add, sub
from typing import Final, TypeAlias, assert_never

from carina_dra.placement.cluster.gpu import GPU
from carina_dra.quantity import Format, Quantity


@dataclass(frozen=True, slots=True, order=True)
class Gpus:
    """Physical GPUs, however they are used, in parts of which a whole GPU has `GPU`."""

    model: str = ""
    """The product name of those that count; empty for all."""


@dataclass(frozen=True, slots=True, order=True)
class DevicesOf:
    """The devices in use that a DeviceClass selects, counted, whatever class was asked for."""

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


Resource: TypeAlias = Gpus | DevicesOf | CapacityOf | Cpu | Memory | Pods
DeviceResource: TypeAlias = Gpus | DevicesOf | CapacityOf
"""What claims consume."""

Amounts: TypeAlias = tuple[int, ...]
"""Amounts of the resources that the queues of a cluster name, in the order of their table."""

_GPUS: Final = "gpus"
_DEVICES: Final = "deviceClass "
_CAPACITY: Final = "capacity "


def describe(resource: Resource) -> str:
    """The resource as messages and files name it; `parse_resource` reads it."""
    match resource:
        case Gpus(model=model):
            return f"{_GPUS} {model}" if model else _GPUS
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
    plain: dict[str, Resource] = {
        _GPUS: Gpus(),
        "cpu": Cpu(),
        "memory": Memory(),
        "pods": Pods(),
    }
    if text in plain:
        return plain[text]
    for prefix, kind in ((f"{_GPUS} ", Gpus), (_DEVICES, DevicesOf), (_CAPACITY, CapacityOf)):
        if text.startswith(prefix) and len(text) > len(prefix):
            return kind(text.removeprefix(prefix))
    raise ValueError(
        f"resource {text!r}: write gpus, `gpus MODEL`, `deviceClass NAME`, "
        "`capacity DOMAIN/NAME`, cpu, memory or pods"
    )


def is_of_devices(resource: Resource) -> bool:
    """Whether claims consume the resource, and not pods themselves."""
    return isinstance(resource, Gpus | DevicesOf | CapacityOf)


def gpus_text(amount: int) -> str:
    """A number of GPUs as people read it: `2`, `0.5`, `1/7`, or to three places."""
    exact = Fraction(amount, GPU)
    if abs(exact) < 1 and 1000 % exact.denominator and exact.denominator < 100:
        return str(exact)
    whole, thousandths = divmod(round(exact * 1000), 1000)
    return f"{whole}.{thousandths:03}".rstrip("0").rstrip(".")


def amount_text(resource: Resource, amount: int) -> str:
    """An amount in messages."""
    return gpus_text(amount) if isinstance(resource, Gpus) else str(amount)


def write_amount(resource: Resource, amount: int) -> object:
    """The quantity of an amount, as people write it."""
    match resource:
        case Gpus():
            return amount // GPU if amount % GPU == 0 else gpus_text(amount)
        case Cpu():
            return str(Quantity(amount * 10**6, Format.DECIMAL_SI))
        case Memory() | CapacityOf():
            return str(Quantity.of(amount))
        case DevicesOf() | Pods():
            return amount
    assert_never(resource)


def figure(resource: Resource, amount: int) -> float:
    """An amount as a number for metrics and charts; nothing is decided with it."""
    return amount / GPU if isinstance(resource, Gpus) else amount


def plus(left: Amounts, right: Amounts) -> Amounts:
    """The sum, resource by resource."""
    return tuple(map(add, left, right))


def minus(left: Amounts, right: Amounts) -> Amounts:
    """The difference, resource by resource."""
    return tuple(map(sub, left, right))


def total(amounts: Iterable[Amounts], size: int) -> Amounts:
    """The sum of amounts, each of this number of resources."""
    result = (0,) * size
    for one in amounts:
        result = plus(result, one)
    return result
