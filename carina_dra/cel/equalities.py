"""Finds the attribute values that a selector requires."""

from collections.abc import Iterator, Mapping
from typing import Final

from carina_dra.cel.device_path import DeviceDomain, device_domain, device_path
from carina_dra.cel.syntax import Bind, Chain, Index, Literal, Logic, Name, Node, Select

_Scope = Mapping[str, DeviceDomain | None]
"""The variables: the domain that a variable stands for, or None."""
_NO_VARIABLES: Final[_Scope] = {}


def equalities(node: Node) -> frozenset[tuple[str, str]]:
    """The qualified names and values of string attributes without which it cannot be true.

    They are the terms `device.attributes["domain"].name == "value"` of the conjunction that the
    expression consists of. Without the value, such a term is false or an error, and so is the
    conjunction: `&&` absorbs errors, but only to be false.
    """
    return frozenset(_required(node, _NO_VARIABLES))


def _required(node: Node, scope: _Scope) -> Iterator[tuple[str, str]]:
    match node:
        case Logic(decisive=False, terms=terms):
            for term in terms:
                yield from _required(term, scope)
        case Bind(name=name, value=value, body=body):
            yield from _required(body, {**scope, name: _domain(value, scope)})
        case Chain(first=first, rest=((_, "_==_", other),)):
            yield from _equality(first, other, scope)
            yield from _equality(other, first, scope)
        case _:
            pass


def _equality(one: Node, other: Node, scope: _Scope) -> Iterator[tuple[str, str]]:
    if not isinstance(one, Select | Index) or not isinstance(other, Literal):
        return
    path = device_path(one, lambda operand: _domain(operand, scope))
    if path is None or path.field != "attributes" or path.is_optional or path.is_test:
        return
    if isinstance(other.value, str):
        yield f"{path.domain}/{path.name}", other.value


def _domain(node: Node, scope: _Scope) -> DeviceDomain | None:
    if isinstance(node, Name):
        return scope.get(node.name)
    return None if "device" in scope else device_domain(node)
