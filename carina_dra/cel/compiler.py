"""Compiles a syntax tree: checks types, chooses overloads, and builds functions.

Each node becomes a Python function of a frame: the device, the budget, and a slot for each
variable. The module is long because there are many kinds of nodes: each has a method, and all
methods share the variables in scope.
"""

from dataclasses import dataclass, replace
from typing import Final, assert_never

from carina_dra.cel import interpreter, loops
from carina_dra.cel.access import (
    attribute_finder,
    attribute_reader,
    capacity_reader,
    indexer,
    optional_indexer,
    optional_selector,
    selector,
    tester,
)
from carina_dra.cel.budget import CostBudget
from carina_dra.cel.calling import Evaluate, Frame, TypedNode, call
from carina_dra.cel.device_path import DeviceDomain, device_domain, device_path
from carina_dra.cel.errors import BudgetExceededError, CompileError, EvaluationError
from carina_dra.cel.functions import FUNCTIONS
from carina_dra.cel.functions.formatting import check_format
from carina_dra.cel.functions.regular_expression import LITERAL, compile_cost, compiled
from carina_dra.cel.functions.standard import TYPE_NAMES
from carina_dra.cel.lexer import error
from carina_dra.cel.syntax import (
    Bind,
    Chain,
    Comprehension,
    Conditional,
    FunctionCall,
    Index,
    ListLiteral,
    Literal,
    Logic,
    LoopKind,
    MapLiteral,
    Name,
    OptionalMap,
    Select,
    SyntaxNode,
)
from carina_dra.cel.types import (
    BOOL,
    BYTES,
    DEVICE,
    DOUBLE,
    DYN,
    INT,
    NULL,
    QUANTITY,
    STRING,
    UINT,
    UNBOUND,
    Type,
    is_same,
    joined,
    list_of,
    map_of,
    optional_of,
    suits,
    type_of,
)
from carina_dra.cel.values import Optional, TypeValue, Value

FIRST_VARIABLE: Final = 2
"""The first slots of a frame are for the device and the budget."""
_DEVICE_TYPES: Final = {
    "driver": STRING,
    "attributes": map_of(STRING, map_of(STRING, DYN)),
    "capacity": map_of(STRING, map_of(STRING, QUANTITY)),
    "allowMultipleAllocations": BOOL,
}
_OF_LITERAL: Final[dict[type, Type]] = {
    bool: BOOL,
    int: INT,
    float: DOUBLE,
    str: STRING,
    bytes: BYTES,
    type(None): NULL,
}
_CONVERSIONS: Final = frozenset(
    {"bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "uint"}
)
"""Constant-folded for constant arguments; a failure is a compile error."""
_OR_VALUE: Final = "orValue"
_LAZY: Final = frozenset({"or", _OR_VALUE})
"""Methods of optional values whose argument is evaluated only if it is needed."""
_FOLDED: Final = frozenset({"quantity", "semver", "ip", "cidr", "url", "isQuantity", "isSemver"})
"""Constant-folded for constant arguments; a failure is left to the evaluation."""
_MAX_PATTERNS: Final = 32
"""The maximal number of literal patterns: all of them fit in the cache of patterns."""
_MAX_DEPTH: Final = 100
"""The maximal depth of the tree: each level takes stack when the expression is evaluated."""
_LONG_CHAIN: Final = 8
"""The number of terms of a chain beyond which it is evaluated in a loop, not by recursion."""
_LIST_COST, _MAP_COST, _ENTRY_COST = 10, 30, 5
_UNCHARGED: Final = 3
"""The number of nodes without a charge that take as long as one unit of cost."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """An expression that can be evaluated."""

    type: Type
    run: Evaluate
    frame_size: int
    """The number of slots of a frame."""
    is_counted: bool
    """Whether its cost is counted, so that it needs a budget."""
    reads: frozenset[str] | None
    """The qualified names of the attributes that it reads; None if they are not known."""
    cost: int
    """The cost of an evaluation whose cost is not counted."""


class Compiler:
    """Compiles one expression, with a method for each kind of node."""

    def __init__(self, text: str, *, is_counted: bool) -> None:
        self._text = text
        self._is_counted = is_counted
        self._budget = CostBudget()
        """For what is evaluated at compile time."""
        self._patterns: set[str] = set()
        self._nodes = 0
        self._depth = 0
        self._uncharged = 0
        """The number of nodes so far that do not charge for their evaluation."""
        self._variables: dict[str, list[tuple[int, Type]]] = {}
        self._frame_size = FIRST_VARIABLE
        self._bound: dict[int, Evaluate] = {}
        """The values of cel.bind variables by slot; evaluated at first use."""
        self._domains: dict[int, DeviceDomain] = {}
        """The cel.bind variables by slot that stand for a domain."""
        self._mixing = 0
        """The number of enclosing calls of `format`."""
        self._reads: set[str] = set()
        self._reads_all = False

    def compile(self, node: SyntaxNode) -> Compiled:
        """Compiles the expression.

        Raises:
            CompileError: a type or a name is wrong.
        """
        typed = self._compile(node)
        reads = None if self._reads_all else frozenset(self._reads)
        return Compiled(
            typed.type, typed.run, self._frame_size, self._is_counted, reads, self._nodes
        )

    def _error(self, node: SyntaxNode, problem: str) -> CompileError:
        return error(self._text, node.at, problem)

    def _compile(self, node: SyntaxNode) -> TypedNode:
        self._nodes += 1
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self._error(node, f"expression recursion limit exceeded: {_MAX_DEPTH}")
        typed = self._compiled(node)
        self._depth -= 1
        return typed

    def _compiled(self, node: SyntaxNode) -> TypedNode:  # noqa: C901, PLR0912 - one case per kind of node
        self._uncharged += isinstance(node, Literal | Logic | Conditional | Bind | OptionalMap)
        match node:
            case Literal(value=value):
                type_ = _OF_LITERAL.get(type(value), UINT)
                return TypedNode(type_, lambda _: value, is_sure=True, is_constant=True)
            case Name():
                return self._name(node)
            case Select():
                return self._select(node)
            case Index():
                return self._index(node)
            case FunctionCall():
                return self._call(node)
            case Chain():
                return self._chain(node)
            case Logic():
                return self._logic(node)
            case Conditional():
                return self._conditional(node)
            case ListLiteral():
                return self._list(node)
            case MapLiteral():
                return self._map(node)
            case Comprehension():
                return self._loop(node)
            case Bind():
                return self._bind(node)
            case OptionalMap():
                return self._optional_map(node)
        assert_never(node)

    def _charged(self, run: Evaluate, cost: int = 1) -> Evaluate:
        """The function with its cost charged, if the cost is counted."""
        if not self._is_counted:
            return run

        def charged(frame: Frame) -> Value:
            frame[1].spend(cost)
            return run(frame)

        return charged

    def _name(self, node: Name) -> TypedNode:
        known = self._variables.get(node.name)
        if known:
            slot, type_ = known[-1]
            if slot in self._domains:
                self._reads_all |= self._domains[slot].field == "attributes"
            bound = self._bound.get(slot)
            run = (
                interpreter.variable(slot)
                if bound is None
                else interpreter.bound_variable(slot, bound)
            )
            return TypedNode(type_, self._charged(run))
        if node.name == "device":
            self._reads_all = True
            return TypedNode(DEVICE, self._charged(lambda frame: frame[0]))
        if node.name in TYPE_NAMES:
            value = TypeValue(node.name)
            return TypedNode(type_of(TYPE_NAMES[node.name]), lambda _: value)
        raise self._error(node, f"undeclared reference to '{node.name}' (in container '')")

    def _is_device(self, node: SyntaxNode) -> bool:
        return (
            isinstance(node, Name) and node.name == "device" and not self._variables.get("device")
        )

    def _select(self, node: Select) -> TypedNode:
        known = self._known_attribute(node)
        if known is not None:
            return known
        if self._is_device(node.operand):
            return self._device_field(node)
        operand = self._compile(node.operand)
        if operand.type == DEVICE:
            return self._field_of_device(node, operand.run)
        value = self._field_type(node, operand.type, node.field)
        run = operand.run
        if node.is_test:
            return TypedNode(BOOL, tester(run, node.field))
        if node.is_optional or operand.type.name == "optional_type":
            return TypedNode(optional_of(value), self._charged(optional_selector(run, node.field)))
        return TypedNode(value, self._charged(selector(run, node.field)))

    def _field_type(self, node: SyntaxNode, operand_type: Type, field: str) -> Type:
        if operand_type.name == "optional_type":
            return self._field_type(node, operand_type.parameters[0], field)
        if operand_type == DYN:
            return DYN
        if operand_type.name == "map" and suits(operand_type.parameters[0], STRING, {}):
            return operand_type.parameters[1]
        raise self._error(node, f"type '{operand_type}' does not support field selection")

    def _field_of_device(self, node: Select, device: Evaluate) -> TypedNode:
        """A field of a variable that is the device."""
        inner = self._device_field(node)
        return TypedNode(inner.type, lambda frame: inner.run([device(frame), frame[1]]))

    def _device_field(self, node: Select) -> TypedNode:
        type_ = _DEVICE_TYPES.get(node.field)
        if type_ is None:
            raise self._error(node, f"undefined field '{node.field}'")
        if node.field == "attributes":
            self._reads_all = True
        if node.is_test:
            return TypedNode(BOOL, lambda _: True)
        run = interpreter.DEVICE_FIELDS[node.field]
        if node.is_optional:
            return TypedNode(
                optional_of(type_), self._charged(lambda frame: Optional((run(frame),)), 2)
            )
        return TypedNode(type_, self._charged(run, 2), is_sure=True)

    def _domain(self, node: SyntaxNode) -> DeviceDomain | None:
        """The domain of a map of the device that a node reads, by itself or as a variable."""
        if isinstance(node, Name):
            known = self._variables.get(node.name)
            return self._domains.get(known[-1][0]) if known else None
        return None if self._variables.get("device") else device_domain(node)

    def _known_attribute(self, node: Select | Index) -> TypedNode | None:
        """`device.attributes["domain"].name` and similar paths, the most frequent operands."""
        path = device_path(node, self._domain)
        if path is None:
            return None
        domain, name = path.domain, path.name
        if path.field == "attributes":
            self._reads.add(f"{domain}/{name}")
            if path.is_test:
                return TypedNode(
                    BOOL, lambda frame: name in frame[0].attributes[domain], is_sure=True
                )
            if path.is_optional:
                return TypedNode(optional_of(DYN), self._charged(attribute_finder(domain, name), 4))
            return TypedNode(DYN, self._charged(attribute_reader(domain, name), 4))
        if path.field == "capacity" and not path.is_test and not path.is_optional:
            return TypedNode(
                QUANTITY, self._charged(capacity_reader(domain, name), 4), is_sure=True
            )
        return None

    def _index(self, node: Index) -> TypedNode:
        known = self._known_attribute(node)
        if known is not None:
            return known
        operand, key = self._compile(node.operand), self._compile(node.key)
        operand_type = operand.type
        is_optional = node.is_optional
        if operand_type.name == "optional_type":
            operand_type, is_optional = operand_type.parameters[0], True
        if operand_type == DYN:
            value = UNBOUND if is_optional else DYN
        elif operand_type.name == "list" and suits(INT, key.type, {}):
            value = operand_type.parameters[0]
        elif operand_type.name == "map" and suits(operand_type.parameters[0], key.type, {}):
            value = operand_type.parameters[1]
        else:
            raise self._no_overload(node, "_[_]", [operand_type, key.type])
        if is_optional:
            return TypedNode(
                optional_of(value), self._charged(optional_indexer(operand.run, key.run))
            )
        return TypedNode(value, self._charged(indexer(operand.run, key.run)))

    def _call(self, node: FunctionCall) -> TypedNode:
        name, arguments, is_member = self._called(node)
        if name == "format" and is_member:
            typed = self._format_arguments(arguments)
        else:
            typed = [self._compile(argument) for argument in arguments]
        prefix = ""
        match name, arguments:
            case (("matches" | "find" | "findAll"), (_, Literal(value=str() as pattern), *_)):
                self._check_pattern(arguments[1], pattern)
                prefix = LITERAL
            case _:
                pass
        result = self._apply(node, name, typed, is_member=is_member, prefix=prefix)
        if name in _LAZY and is_member:
            self._uncharged += 1
            operand, other = (argument.run for argument in typed)
            run = interpreter.or_else(operand, other, is_value=name == _OR_VALUE)
            return replace(result, run=run)
        if name in _FOLDED | _CONVERSIONS and all(argument.is_constant for argument in typed):
            return self._folded(node, name, result)
        return result

    def _called(self, node: FunctionCall) -> tuple[str, tuple[SyntaxNode, ...], bool]:
        """The function's qualified name, its arguments, and whether it is a method of the first."""
        if node.target is None:
            return node.function, node.arguments, False
        if isinstance(node.target, Name) and not self._variables.get(node.target.name):
            name = f"{node.target.name}.{node.function}"
            if name in FUNCTIONS:
                return name, node.arguments, False
        return node.function, (node.target, *node.arguments), True

    def _check_pattern(self, node: SyntaxNode, pattern: str) -> None:
        if pattern in self._patterns:
            return
        self._patterns.add(pattern)
        if len(self._patterns) > _MAX_PATTERNS:
            raise self._error(node, f"more than {_MAX_PATTERNS} regular expressions")
        try:
            self._budget.spend(compile_cost(pattern))
            self._budget.spend(compiled(pattern).size)
        except BudgetExceededError:
            raise self._error(node, "the regular expressions are too complex") from None
        except EvaluationError as problem:
            raise self._error(node, f"invalid matches argument: {problem}") from None

    def _format_arguments(self, arguments: tuple[SyntaxNode, ...]) -> list[TypedNode]:
        """A template and its arguments, which may be of different types."""
        self._mixing += 1
        template = self._compile(arguments[0])
        match arguments:
            case (Literal(value=str() as text), ListLiteral() as values):
                items = self._items(values)
                typed = [template, self._list_of(values, items)]
                try:
                    check_format(text, [item.type for item in items])
                except EvaluationError as problem:
                    raise self._error(arguments[0], str(problem)) from None
            case _:
                typed = [template, *(self._compile(argument) for argument in arguments[1:])]
        self._mixing -= 1
        return typed

    def _folded(self, node: SyntaxNode, name: str, typed: TypedNode) -> TypedNode:
        """A constant, evaluated now."""
        try:
            value = typed.run([None, self._budget])
        except EvaluationError as problem:
            if name in _CONVERSIONS:
                raise self._error(node, f"invalid {name} argument: {problem}") from None
            return typed
        return TypedNode(
            typed.type,
            self._charged(lambda _: value),
            is_sure=typed.type != DYN,
            is_constant=name in _CONVERSIONS,
        )

    def _apply(
        self,
        node: SyntaxNode,
        name: str,
        typed: list[TypedNode],
        *,
        is_member: bool,
        prefix: str = "",
    ) -> TypedNode:
        """A call of a function, or of its variant with a prefix, with compiled arguments."""
        if name not in FUNCTIONS:
            raise self._error(node, f"undeclared reference to '{name}' (in container '')")
        called = call(prefix + name, typed, is_member=is_member, is_counted=self._is_counted)
        if called is None:
            raise self._no_overload(
                node, name, [argument.type for argument in typed], is_member=is_member
            )
        return called

    def _no_overload(
        self, node: SyntaxNode, name: str, given: list[Type], *, is_member: bool = False
    ) -> CompileError:
        types = [f"'{type_}'" for type_ in given]
        applied = f"{types[0]}.({', '.join(types[1:])})" if is_member else f"({', '.join(types)})"
        return self._error(node, f"found no matching overload for '{name}' applied to {applied}")

    def _chain(self, node: Chain) -> TypedNode:
        value = self._compile(node.first)
        slot = self._frame_size
        steps: list[Evaluate] = []
        if len(node.rest) > _LONG_CHAIN:
            self._frame_size += 1
        for at, name, term in node.rest:
            if len(node.rest) > _LONG_CHAIN:
                steps.append(value.run)
                value = replace(value, run=interpreter.variable(slot))
            operator = Literal(at, None)
            value = self._apply(operator, name, [value, self._compile(term)], is_member=False)
        if not steps:
            return value
        return replace(value, run=interpreter.sequence(slot, steps, value.run))

    def _logic(self, node: Logic) -> TypedNode:
        runs = tuple(
            self._condition(term, "_||_" if node.decisive else "_&&_") for term in node.terms
        )
        decisive = node.decisive
        return TypedNode(BOOL, interpreter.logic(runs, decisive=decisive), is_sure=True)

    def _condition(self, node: SyntaxNode, used_by: str) -> Evaluate:
        """A node that must be a boolean."""
        typed = self._compile(node)
        if typed.type not in (BOOL, DYN):
            raise self._no_overload(node, used_by, [typed.type])
        return typed.run

    def _conditional(self, node: Conditional) -> TypedNode:
        condition = self._condition(node.condition, "_?_:_")
        yes, no = self._compile(node.yes), self._compile(node.no)
        together = joined([yes.type, no.type])
        if together is None:
            raise self._no_overload(node, "_?_:_", [BOOL, yes.type, no.type])
        return TypedNode(together, interpreter.conditional(condition, yes.run, no.run))

    def _item(self, node: SyntaxNode, *, is_optional: bool) -> TypedNode:
        """An element of a list or map literal; for an optional one, the type of its value."""
        typed = self._compile(node)
        if not is_optional:
            return typed
        if typed.type != DYN and typed.type.name != "optional_type":
            raise self._error(node, f"expected type 'optional_type' but found '{typed.type}'")
        inner = typed.type.parameters[0] if typed.type.parameters else DYN
        return TypedNode(inner, typed.run)

    def _joined(self, node: SyntaxNode, types: list[Type]) -> Type:
        """The common type of the elements of a literal. Arguments of `format` may differ."""
        other = next((type_ for type_ in types if not is_same(types[0], type_)), None)
        if other is not None and not self._mixing:
            raise self._error(node, f"expected type '{types[0]}' but found '{other}'")
        return joined(types) or DYN

    def _list(self, node: ListLiteral) -> TypedNode:
        return self._list_of(node, self._items(node))

    def _items(self, node: ListLiteral) -> list[TypedNode]:
        return [
            self._item(item, is_optional=index in node.optional)
            for index, item in enumerate(node.items)
        ]

    def _list_of(self, node: ListLiteral, items: list[TypedNode]) -> TypedNode:
        types = [item.type for item in items]
        type_ = list_of(self._joined(node, types))
        runs = tuple(item.run for item in items)
        cost = _LIST_COST + len(runs)
        return TypedNode(type_, self._charged(interpreter.listing(runs, node.optional), cost))

    def _map(self, node: MapLiteral) -> TypedNode:
        keys = [self._compile(key) for key, _, _ in node.entries]
        values = [
            self._item(value, is_optional=is_optional) for _, value, is_optional in node.entries
        ]
        type_ = map_of(
            self._joined(node, [key.type for key in keys]),
            self._joined(node, [value.type for value in values]),
        )
        entries = tuple(
            (key.run, value.run, is_optional)
            for key, value, (_, _, is_optional) in zip(keys, values, node.entries, strict=True)
        )
        cost = _MAP_COST + _ENTRY_COST * len(entries)
        return TypedNode(type_, self._charged(interpreter.mapping(entries), cost))

    def _variable(self, name: str, type_: Type) -> int:
        """Declares a variable until `_leave`. Returns its slot."""
        slot = self._frame_size
        self._frame_size += 1
        self._variables.setdefault(name, []).append((slot, type_))
        return slot

    def _leave(self, *names: str) -> None:
        for name in names:
            self._variables[name].pop()

    def _loop(self, node: Comprehension) -> TypedNode:
        over = self._compile(node.over)
        key, value = self._elements(node, over.type)
        single = key if over.type.name == "map" else value
        variables = (key, value) if len(node.names) > 1 else (single,)
        slots = [
            self._variable(name, type_) for name, type_ in zip(node.names, variables, strict=True)
        ]
        before = self._uncharged
        condition = self._condition(node.condition, node.kind.value) if node.condition else None
        body = self._compile(node.body) if node.body else None
        self._leave(*node.names)
        uncharged = (self._uncharged - before) // _UNCHARGED
        run = loops.loop(
            node.kind, over.run, slots, condition, None if body is None else body.run, uncharged
        )
        return TypedNode(self._loop_type(node, key, single, body), run)

    def _elements(self, node: Comprehension, over: Type) -> tuple[Type, Type]:
        """The types of the index or key, and of the value."""
        match over.name:
            case "list":
                return INT, over.parameters[0]
            case "map":
                return over.parameters[0], over.parameters[1]
            case "dyn":
                return DYN, DYN
            case _:
                raise self._error(
                    node,
                    f"expression of type '{over}' cannot be range of a comprehension "
                    "(must be list, map, or dynamic)",
                )

    def _loop_type(
        self, node: Comprehension, key: Type, single: Type, body: TypedNode | None
    ) -> Type:
        made = DYN if body is None else body.type
        match node.kind:
            case LoopKind.ALL | LoopKind.EXISTS | LoopKind.EXISTS_ONE:
                return BOOL
            case LoopKind.MAP:
                return list_of(made)
            case LoopKind.FILTER | LoopKind.SORT_BY:
                return list_of(single)
            case LoopKind.TRANSFORM_MAP:
                return map_of(key, made)
            case LoopKind.TRANSFORM_ENTRY:
                if made.name not in ("map", "dyn"):
                    raise self._error(node, f"expected type 'map' but found '{made}'")
                return made if made.name == "map" else map_of(DYN, DYN)

    def _bind(self, node: Bind) -> TypedNode:
        domain, reads_all = self._domain(node.value), self._reads_all
        value = self._compile(node.value)
        slot = self._variable(node.name, value.type)
        self._bound[slot] = value.run
        if domain is not None:
            self._domains[slot] = domain
            self._reads_all = reads_all  # until the variable is used by itself
        body = self._compile(node.body)
        self._leave(node.name)
        return TypedNode(body.type, interpreter.binding(slot, body.run))

    def _optional_map(self, node: OptionalMap) -> TypedNode:
        operand = self._compile(node.operand)
        if operand.type != DYN and operand.type.name != "optional_type":
            raise self._error(node, f"expected type 'optional_type' but found '{operand.type}'")
        inner = operand.type.parameters[0] if operand.type.parameters else DYN
        slot = self._variable(node.name, inner)
        body = self._compile(node.body)
        self._leave(node.name)
        if node.is_flat and body.type != DYN and body.type.name != "optional_type":
            raise self._error(node, f"expected type 'optional_type' but found '{body.type}'")
        run = interpreter.optional_map(operand.run, slot, body.run, is_flat=node.is_flat)
        return TypedNode(body.type if node.is_flat else optional_of(body.type), run)
