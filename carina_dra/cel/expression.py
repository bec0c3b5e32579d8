"""Expressions on devices: selectors and derived attributes (KEP-4381).

Stored expressions may use all functions of Kubernetes 1.37, whatever the feature gates: these apply
when an expression is stored.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from carina_dra.cel.budget import Budget
from carina_dra.cel.compiler import Compiled, Compiler
from carina_dra.cel.device import CelDevice
from carina_dra.cel.errors import CompileError, EvaluationError
from carina_dra.cel.parser import parse
from carina_dra.cel.types import BOOL, DYN, INT, SEMVER, STRING, UNBOUND
from carina_dra.cel.values import Value, kind
from carina_dra.resource import (
    BoolAttribute,
    BoolsAttribute,
    DeviceAttribute,
    IntAttribute,
    IntsAttribute,
    StringAttribute,
    StringsAttribute,
    VersionAttribute,
    VersionsAttribute,
)

_REMEMBERED: Final = 4096
_PYTHON_ERRORS: Final = (
    TypeError,
    ValueError,
    ArithmeticError,
    LookupError,
    AttributeError,
    RecursionError,
    MemoryError,
)
"""Errors that Python may raise for values that the implementation did not foresee."""


@dataclass(frozen=True, slots=True)
class Selector:
    """An expression that is true or false for a device. Thread-safe."""

    expression: str
    _compiled: Compiled = field(repr=False, compare=False)

    @property
    def reads(self) -> frozenset[str] | None:
        """The qualified names of the attributes that it reads; None if they are not known."""
        return self._compiled.reads

    def matches(self, device: CelDevice) -> bool:
        """Whether it is true for the device.

        Raises:
            EvaluationError: it has no value, or one that is not a boolean.
        """
        value = _run(self._compiled, device)
        if value is True or value is False:
            return bool(value)
        raise EvaluationError(f"CEL result of type {kind(value)} could not be converted to bool")


@dataclass(frozen=True, slots=True)
class AttributeExpression:
    """An expression that computes an attribute of a device. Thread-safe."""

    expression: str
    _compiled: Compiled = field(repr=False, compare=False)

    @property
    def reads(self) -> frozenset[str] | None:
        """The qualified names of the attributes that it reads; None if they are not known."""
        return self._compiled.reads

    def evaluate(self, device: CelDevice) -> DeviceAttribute:
        """The attribute.

        Raises:
            EvaluationError: it has no value, or one that attributes do not support.
        """
        return _attribute(_run(self._compiled, device))


def compile_selector(expression: str) -> Selector:
    """Compiles a selector. Results are cached.

    Raises:
        CompileError: the text is not a valid expression, or its result is not a boolean.
    """
    compiled = _compiled(expression)
    if compiled.type not in (BOOL, DYN):
        raise CompileError(f"must evaluate to bool or the unknown type, not {compiled.type}")
    return Selector(expression, compiled)


def compile_attribute(expression: str) -> AttributeExpression:
    """Compiles a derived attribute. Results are cached.

    Raises:
        CompileError: the text is not a valid expression, or attributes do not support its result.
    """
    compiled = _compiled(expression)
    element = compiled.type.parameters[0] if compiled.type.name == "list" else compiled.type
    if element not in (BOOL, INT, STRING, SEMVER, DYN, UNBOUND):
        raise CompileError(
            "must evaluate to a primitive scalar (string, integer, boolean, semver) or a list of "
            f"these scalars, not {compiled.type}"
        )
    return AttributeExpression(expression, compiled)


def _attribute(value: Value) -> DeviceAttribute:
    """A value as an attribute. An empty list is a list of strings, as upstream."""
    if value == () and kind(value) == "list":
        return StringsAttribute(())
    kinds = {kind(item) for item in value} if kind(value) == "list" else {kind(value)}
    made = _ATTRIBUTES.get(kinds.pop()) if len(kinds) == 1 else None
    if made is None:
        raise EvaluationError(f"unsupported type {kind(value)} of a derived attribute")
    return made[1](value) if kind(value) == "list" else made[0](value)


_ATTRIBUTES: Final[
    dict[str, tuple[Callable[[Value], DeviceAttribute], Callable[[Value], DeviceAttribute]]]
] = {
    "bool": (BoolAttribute, BoolsAttribute),
    "int": (IntAttribute, IntsAttribute),
    "string": (StringAttribute, StringsAttribute),
    "kubernetes.Semver": (
        lambda value: VersionAttribute(str(value)),
        lambda values: VersionsAttribute(tuple(map(str, values))),
    ),
}
"""By kind: the attribute of one value, and of a list."""


@lru_cache(maxsize=_REMEMBERED)
def _compiled(expression: str) -> Compiled:
    try:
        node, may_grow = parse(expression)
        return Compiler(expression, may_grow=may_grow).compile(node)
    except RecursionError:
        raise CompileError("the expression is nested too deeply") from None


def _run(compiled: Compiled, device: CelDevice) -> Value:
    device.make_ready()
    frame: list[Value] = [device, None, *[None] * (compiled.frame_size - 2)]
    if compiled.is_counted:
        frame[1] = Budget()
    try:
        return compiled.run(frame)
    except _PYTHON_ERRORS as error:
        raise EvaluationError(f"cannot be evaluated: {error}") from error
