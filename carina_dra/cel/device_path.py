"""Recognizes the most frequent operand of selectors: `device.attributes["domain"].name`."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from carina_dra.cel.syntax import Index, Literal, Name, Select, SyntaxNode

_MAPS: Final = ("attributes", "capacity")


@dataclass(frozen=True, slots=True)
class DeviceDomain:
    """The part of one of the device's maps with a literal domain."""

    field: str
    """`attributes` or `capacity`."""
    domain: str


@dataclass(frozen=True, slots=True)
class DevicePath:
    """An element of one of the device's maps, with literal domain and name."""

    field: str
    """`attributes` or `capacity`."""
    domain: str
    name: str
    is_optional: bool
    """`.?name` or `[?"name"]`."""
    is_test: bool
    """`has(...)`."""


def device_domain(node: SyntaxNode) -> DeviceDomain | None:
    """The domain that `device.attributes["domain"]` or `device.capacity["domain"]` reads.

    The caller knows that the name `device` is not that of a variable.
    """
    if not isinstance(node, Index) or node.is_optional or not isinstance(node.operand, Select):
        return None
    domain, field = _text(node.key), node.operand
    if domain is None or field.is_optional or field.is_test:
        return None
    if not isinstance(field.operand, Name) or field.operand.name != "device":
        return None
    return DeviceDomain(field.field, domain) if field.field in _MAPS else None


def device_path(
    node: Select | Index, domain_of: Callable[[SyntaxNode], DeviceDomain | None]
) -> DevicePath | None:
    """The element that a node reads; None for any other node.

    domain_of: the domain that an operand reads, by itself or as a variable.
    """
    name = node.field if isinstance(node, Select) else _text(node.key)
    if name is None:
        return None
    domain = domain_of(node.operand)
    if domain is None:
        return None
    is_test = isinstance(node, Select) and node.is_test
    return DevicePath(domain.field, domain.domain, name, node.is_optional, is_test)


def _text(node: SyntaxNode) -> str | None:
    """The value of a string literal."""
    if isinstance(node, Literal) and isinstance(node.value, str):
        return node.value
    return None
