"""Recognizes the most frequent operand of selectors: `device.attributes["domain"].name`."""

from dataclasses import dataclass

from carina_dra.cel.syntax import Index, Literal, Name, Node, Select


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


def device_path(node: Select | Index) -> DevicePath | None:
    """The element that a node reads; None for any other node."""
    name = node.field if isinstance(node, Select) else _text(node.key)
    of = node.operand
    if name is None or not isinstance(of, Index) or of.is_optional:
        return None
    domain, field = _text(of.key), of.operand
    if domain is None or not isinstance(field, Select) or field.is_optional or field.is_test:
        return None
    if not isinstance(field.operand, Name) or field.operand.name != "device":
        return None
    is_test = isinstance(node, Select) and node.is_test
    return DevicePath(field.field, domain, name, node.is_optional, is_test)


def _text(node: Node) -> str | None:
    """The value of a string literal."""
    if isinstance(node, Literal) and isinstance(node.value, str):
        return node.value
    return None
