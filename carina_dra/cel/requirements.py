"""Finds what a selector requires of a device: values of attributes, and amounts of capacities.

These are terms of the conjunction that the expression consists of. A device that does not meet one
is not selected: `&&` absorbs the errors of other terms, but only to be false.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from carina_dra.cel.device_path import DeviceDomain, DevicePath, device_domain, device_path
from carina_dra.cel.syntax import (
    Bind,
    Chain,
    FunctionCall,
    Index,
    Literal,
    Logic,
    Name,
    Select,
    SyntaxNode,
)
from carina_dra.quantity import Quantity, QuantityError

_Scope = Mapping[str, DeviceDomain | None]
"""The variables: the domain that a variable stands for, or None."""
_NO_VARIABLES: Final[_Scope] = {}


def equalities(node: SyntaxNode) -> frozenset[tuple[str, str]]:
    """The qualified names and values of string attributes without which it cannot be true.

    They are terms `device.attributes["domain"].name == "value"`. Without the value, such a term is
    false or an error.
    """
    return frozenset(
        found
        for term, scope in _terms(node, _NO_VARIABLES)
        if isinstance(term, Chain) and len(term.rest) == 1 and term.rest[0][1] == "_==_"
        for left, right in ((term.first, term.rest[0][2]), (term.rest[0][2], term.first))
        if (found := _equality(left, right, scope)) is not None
    )


def minimums(node: SyntaxNode) -> frozenset[tuple[str, int]]:
    """The qualified names of capacities and their least amounts in billionths.

    They are terms `device.capacity["domain"].name.compareTo(quantity("1Gi")) >= 0`, also with `>`,
    and `device.capacity["domain"].name.isGreaterThan(quantity("1Gi"))`. With less of the capacity,
    such a term is false; without the capacity, it is an error.
    """
    return frozenset(
        found
        for term, scope in _terms(node, _NO_VARIABLES)
        if (found := _minimum(term, scope)) is not None
    )


def _terms(node: SyntaxNode, scope: _Scope) -> Iterator[tuple[SyntaxNode, _Scope]]:
    """The terms of the conjunction, with the variables that each can use."""
    match node:
        case Logic(decisive=False, terms=terms):
            for term in terms:
                yield from _terms(term, scope)
        case Bind(name=name, value=value, body=body):
            yield from _terms(body, {**scope, name: _domain(value, scope)})
        case _:
            yield node, scope


def _equality(operand: SyntaxNode, constant: SyntaxNode, scope: _Scope) -> tuple[str, str] | None:
    path = _path(operand, scope)
    if path is None or path.field != "attributes" or not isinstance(constant, Literal):
        return None
    return (
        (f"{path.domain}/{path.name}", constant.value) if isinstance(constant.value, str) else None
    )


def _minimum(term: SyntaxNode, scope: _Scope) -> tuple[str, int] | None:
    match term:
        case Chain(
            first=FunctionCall(function="compareTo", target=target, arguments=(amount,)),
            rest=((_, "_>=_" | "_>_", Literal(value=0)),),
        ):
            pass
        case FunctionCall(function="isGreaterThan", target=target, arguments=(amount,)):
            pass
        case _:
            return None
    path, least = _path(target, scope), _amount(amount)
    if path is None or path.field != "capacity" or least is None:
        return None
    return f"{path.domain}/{path.name}", least


def _amount(node: SyntaxNode) -> int | None:
    """The value of `quantity("1Gi")` in billionths."""
    match node:
        case FunctionCall(function="quantity", target=None, arguments=(Literal(value=str(text)),)):
            try:
                return Quantity.parse(text).nanos
            except QuantityError:
                return None
        case _:
            return None


def _path(node: SyntaxNode | None, scope: _Scope) -> DevicePath | None:
    """The attribute or capacity that a node reads, if it is an error that the device lacks it."""
    if not isinstance(node, Select | Index):
        return None
    path = device_path(node, lambda operand: _domain(operand, scope))
    return None if path is None or path.is_optional or path.is_test else path


def _domain(node: SyntaxNode, scope: _Scope) -> DeviceDomain | None:
    if isinstance(node, Name):
        return scope.get(node.name)
    return None if "device" in scope else device_domain(node)
