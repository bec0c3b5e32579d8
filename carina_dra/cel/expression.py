"""Expressions on devices: selectors and derived attributes (KEP-4381).

Stored expressions may use all functions of Kubernetes 1.37, whatever the feature gates: these apply
when an expression is stored.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from carina_dra.cel.budget import CostBudget, Meter
from carina_dra.cel.cache import ExpressionCache
from carina_dra.cel.compiler import Compiled, Compiler
from carina_dra.cel.device import CelDevice
from carina_dra.cel.errors import CelError, CompileError, EvaluationError
from carina_dra.cel.parser import parse
from carina_dra.cel.requirements import equalities, minimums
from carina_dra.cel.syntax import SyntaxNode
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
from carina_dra.resource.limits import CEL_EXPRESSION_BYTES

T = TypeVar("T", str, int)

_MAX_VALUES: Final = 1_000
_MAX_TEXT: Final = 4_096
"""The limits of a derived attribute, in values and characters. Upstream has none."""
_MAX_DECIDING: Final = 8
"""The number of equalities and minimums that decide: a selector may have any number of them."""


@dataclass(frozen=True, slots=True)
class Selector:
    """An expression that is true or false for a device. Thread-safe."""

    expression: str
    _compiled: Compiled = field(repr=False, compare=False)
    equalities: frozenset[tuple[str, str]] = field(repr=False, compare=False)
    """Qualified names and values of string attributes: it is true for no device without them all.

    For such a device it is false or has an error. Other conditions may be necessary too.
    """
    deciding: tuple[tuple[str, str], ...] = field(repr=False, compare=False)
    """Those of them that decide: it is false for a device with another string for one of them.

    It is not an error then, unless no expression can be evaluated for the device.
    """
    minimums: tuple[tuple[str, int], ...] = field(repr=False, compare=False)
    """Qualified names of capacities, and amounts in billionths.

    It is false for a device with less of one of them, likewise.
    """

    @property
    def reads(self) -> frozenset[str] | None:
        """The qualified names of the attributes that it reads; None if they are not known."""
        return self._compiled.reads

    @property
    def cost(self) -> int | None:
        """What each evaluation costs, if this is known before; None if it is counted."""
        return None if self._compiled.is_counted else self._compiled.cost

    def matches(self, device: CelDevice, meter: Meter | None = None) -> bool:
        """Whether it is true for the device.

        meter: the cost of the evaluation is added to it, also if there is an error.

        Raises:
            EvaluationError: it has no value, or one that is not a boolean.
        """
        value = _run(self._compiled, device, meter)
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

    def evaluate(self, device: CelDevice, meter: Meter | None = None) -> DeviceAttribute:
        """The attribute.

        meter: the cost of the evaluation is added to it, also if there is an error.

        Raises:
            EvaluationError: it has no value, or one that attributes do not support.
        """
        return _attribute(_run(self._compiled, device, meter))


def compile_selector(expression: str) -> Selector:
    """Compiles a selector. Equal texts give the same object, as long as it is cached.

    Raises:
        CompileError: the text is not a valid expression, or its result is not a boolean.
    """
    return _SELECTORS.get(expression)


def compile_attribute(expression: str) -> AttributeExpression:
    """Compiles a derived attribute. Equal texts give the same object, as long as it is cached.

    Raises:
        CompileError: the text is not a valid expression, or attributes do not support its result.
    """
    return _DERIVED.get(expression)


def _selector(expression: str) -> Selector:
    node, compiled = _compiled(expression)
    if compiled.type not in (BOOL, DYN):
        raise CompileError(f"must evaluate to bool or the unknown type, not {compiled.type}")
    required = equalities(node)
    if compiled.is_counted:  # the evaluation may end before it comes to what decides
        return Selector(expression, compiled, required, (), ())
    return Selector(expression, compiled, required, _deciding(required), _deciding(minimums(node)))


def _deciding(required: Iterable[tuple[str, T]]) -> tuple[tuple[str, T], ...]:
    """Those with names that devices can have: of a domain, and an identifier without slash."""
    return tuple(sorted(one for one in required if one[0].count("/") == 1))[:_MAX_DECIDING]


def _derived(expression: str) -> AttributeExpression:
    _, compiled = _compiled(expression)
    element = compiled.type.parameters[0] if compiled.type.name == "list" else compiled.type
    if element not in (BOOL, INT, STRING, SEMVER, DYN, UNBOUND):
        raise CompileError(
            "must evaluate to a primitive scalar (string, integer, boolean, semver) or a list of "
            f"these scalars, not {compiled.type}"
        )
    return AttributeExpression(expression, compiled)


_SELECTORS: Final = ExpressionCache(_selector)
_DERIVED: Final = ExpressionCache(_derived)


def _attribute(value: Value) -> DeviceAttribute:
    """A value as an attribute. An empty list is a list of strings, as upstream."""
    if value == () and kind(value) == "list":
        return StringsAttribute(())
    values = value if kind(value) == "list" else (value,)
    longest = max((len(text) for text in values if isinstance(text, str)), default=0)
    if len(values) > _MAX_VALUES or longest > _MAX_TEXT:
        raise EvaluationError("the value is too large for a derived attribute")
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


def _compiled(expression: str) -> tuple[SyntaxNode, Compiled]:
    length = len(expression.encode("utf-8", "surrogatepass"))
    if length > CEL_EXPRESSION_BYTES:
        raise CompileError(
            f"the expression has {length} bytes, and {CEL_EXPRESSION_BYTES} are allowed"
        )
    try:
        node, is_costly = parse(expression)
        return node, Compiler(expression, is_counted=is_costly).compile(node)
    except RecursionError:
        raise CompileError("the expression is nested too deeply") from None
    except CelError:
        raise
    except Exception as error:  # whatever Python has against it is not the caller's problem
        raise CompileError(f"cannot be compiled: {error}") from error


def _run(compiled: Compiled, device: CelDevice, meter: Meter | None) -> Value:
    frame: list[Value] = [device, None, *[None] * (compiled.frame_size - 2)]
    if compiled.is_counted:
        frame[1] = CostBudget()
    try:
        device.make_ready()
        return compiled.run(frame)
    except CelError:
        raise
    except Exception as error:  # whatever Python has against the values is not the caller's problem
        raise EvaluationError(f"cannot be evaluated: {error}") from error
    finally:
        if meter is not None:
            meter.spent += compiled.cost if frame[1] is None else frame[1].spent
