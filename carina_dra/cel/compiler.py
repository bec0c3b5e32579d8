"""From syntax tree to what is run: types are checked and overloads chosen on the way.

What runs is one Python function a node, which is given a frame: the device, the budget, and a place
for each variable of a loop.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias, assert_never

from carina_dra.cel import loops
from carina_dra.cel.access import (
    attribute_reader,
    capacity_reader,
    indexer,
    optional_indexer,
    optional_selector,
    selector,
    tester,
)
from carina_dra.cel.budget import SHORT
from carina_dra.cel.errors import BudgetExceededError, CompileError, EvaluationError
from carina_dra.cel.functions import FUNCTIONS
from carina_dra.cel.functions.overload import Overload
from carina_dra.cel.functions.regular_expression import compiled
from carina_dra.cel.functions.standard import TYPE_NAMES
from carina_dra.cel.lexer import error
from carina_dra.cel.syntax import (
    Bind,
    Call,
    Chain,
    Conditional,
    Index,
    ListLiteral,
    Literal,
    Logic,
    Loop,
    LoopKind,
    MapLiteral,
    Name,
    Node,
    OptionalMap,
    Select,
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
    filled_in,
    is_open,
    is_same,
    joined,
    list_of,
    map_of,
    may_be,
    optional_of,
    suits,
    type_of,
)
from carina_dra.cel.values import NONE, Optional, TypeValue, Value, kind, no_overload

Frame: TypeAlias = list[Value]
Run: TypeAlias = Callable[[Frame], Value]

FIRST_VARIABLE: Final = 2
"""Before it in a frame: the device, and the budget."""
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
"""What they make of what is written out is worked out once, and must be possible."""
_FOLDED: Final = frozenset({"quantity", "semver", "ip", "cidr", "url", "isQuantity", "isSemver"})
"""What they make of what is written out is worked out once, if it is possible."""
_WITH_PATTERN: Final = frozenset({"matches", "find", "findAll"})
_LIST_COST, _MAP_COST = 10, 30


@dataclass(frozen=True, slots=True)
class Typed:
    """What runs, and the type of what it gives."""

    type: Type
    run: Run
    is_sure: bool = False
    """Whether values are sure to be of that type: it was not `dyn` that was taken for it."""
    is_constant: bool = False
    """Whether it is written out, or made of what is by a conversion."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """An expression that can be run."""

    type: Type
    run: Run
    places: int
    """The size of its frames."""
    is_counted: bool
    """Whether it needs a budget."""
    reads: frozenset[str] | None
    """The attributes that it reads, with their domains; None where that cannot be told."""


class Compiler:
    """Compiles one expression."""

    def __init__(self, text: str, *, has_loop: bool) -> None:
        self._text = text
        self._is_counted = has_loop or len(text) > SHORT
        self._variables: dict[str, list[tuple[int, Type]]] = {}
        self._places = FIRST_VARIABLE
        self._bound: dict[int, Run] = {}
        """What the variables of cel.bind are, worked out when they are first used."""
        self._mixing = 0
        """In how many calls of `format` we are."""
        self._reads: set[str] = set()
        self._reads_all = False

    def whole(self, node: Node) -> Compiled:
        """Compiles the expression.

        Raises:
            CompileError: it does not fit together.
        """
        typed = self._compile(node)
        reads = None if self._reads_all else frozenset(self._reads)
        return Compiled(typed.type, typed.run, self._places, self._is_counted, reads)

    def _error(self, node: Node, problem: str) -> CompileError:
        return error(self._text, node.at, problem)

    def _compile(self, node: Node) -> Typed:  # noqa: C901, PLR0912 - one case a kind of node
        match node:
            case Literal(value=value):
                its_type = _OF_LITERAL.get(type(value), UINT)
                return Typed(its_type, lambda _: value, is_sure=True, is_constant=True)
            case Name():
                return self._name(node)
            case Select():
                return self._select(node)
            case Index():
                return self._index(node)
            case Call():
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
            case Loop():
                return self._loop(node)
            case Bind():
                return self._bind(node)
            case OptionalMap():
                return self._optional_map(node)
        assert_never(node)

    def _charged(self, run: Run, cost: int = 1) -> Run:
        """With what it costs, where that is counted."""
        if not self._is_counted:
            return run

        def charged(frame: Frame) -> Value:
            frame[1].spend(cost)
            return run(frame)

        return charged

    def _name(self, node: Name) -> Typed:
        known = self._variables.get(node.name)
        if known:
            place, its_type = known[-1]
            bound = self._bound.get(place)
            run = _variable(place) if bound is None else _bound_variable(place, bound)
            return Typed(its_type, self._charged(run))
        if node.name == "device":
            self._reads_all = True
            return Typed(DEVICE, self._charged(lambda frame: frame[0]))
        if node.name in TYPE_NAMES:
            value = TypeValue(node.name)
            return Typed(type_of(TYPE_NAMES[node.name]), lambda _: value)
        raise self._error(node, f"undeclared reference to '{node.name}' (in container '')")

    def _is_device(self, node: Node) -> bool:
        return (
            isinstance(node, Name) and node.name == "device" and not self._variables.get("device")
        )

    def _select(self, node: Select) -> Typed:
        known = self._known_attribute(node)
        if known is not None:
            return known
        if self._is_device(node.operand):
            return self._device_field(node)
        operand = self._compile(node.operand)
        if operand.type == DEVICE:
            raise self._error(node, "the device is to be used as the variable device")
        value = self._field_type(node, operand.type, node.field)
        run = operand.run
        if node.is_test:
            return Typed(BOOL, tester(run, node.field))
        if node.is_optional or operand.type.name == "optional_type":
            return Typed(optional_of(value), self._charged(optional_selector(run, node.field)))
        return Typed(value, self._charged(selector(run, node.field)))

    def _field_type(self, node: Node, of: Type, field: str) -> Type:
        if of.name == "optional_type":
            return self._field_type(node, of.parameters[0], field)
        if of == DYN:
            return DYN
        if of.name == "map" and suits(of.parameters[0], STRING, {}):
            return of.parameters[1]
        raise self._error(node, f"type '{of}' does not support field selection")

    def _device_field(self, node: Select) -> Typed:
        its_type = _DEVICE_TYPES.get(node.field)
        if its_type is None:
            raise self._error(node, f"undefined field '{node.field}'")
        if node.field == "attributes":
            self._reads_all = True
        if node.is_test:
            return Typed(BOOL, lambda _: True)
        run = _DEVICE_FIELDS[node.field]
        if node.is_optional:
            return Typed(
                optional_of(its_type), self._charged(lambda frame: Optional((run(frame),)), 2)
            )
        return Typed(its_type, self._charged(run, 2), is_sure=True)

    def _known_attribute(self, node: Select | Index) -> Typed | None:
        """`device.attributes["domain"].name` and its like, which are most of what is asked."""
        if isinstance(node, Index):
            if not isinstance(node.key, Literal) or not isinstance(node.key.value, str):
                return None
            name = node.key.value
        else:
            name = node.field
        of = node.operand
        if not isinstance(of, Index) or of.is_optional or not isinstance(of.key, Literal):
            return None
        if not isinstance(of.operand, Select) or not self._is_device(of.operand.operand):
            return None
        if of.operand.is_optional or of.operand.is_test or not isinstance(of.key.value, str):
            return None
        domain, which = of.key.value, of.operand.field
        is_test = isinstance(node, Select) and node.is_test
        if which not in ("attributes", "capacity") or is_test or node.is_optional:
            if which == "attributes" and isinstance(node, Select | Index):
                return self._tried_attribute(domain, name, is_test=is_test)
            return None
        if which == "attributes":
            self._reads.add(f"{domain}/{name}")
            return Typed(DYN, self._charged(attribute_reader(domain, name), 4))
        return Typed(QUANTITY, self._charged(capacity_reader(domain, name), 4), is_sure=True)

    def _tried_attribute(self, domain: str, name: str, *, is_test: bool) -> Typed:
        """An attribute that may be missing."""
        self._reads.add(f"{domain}/{name}")
        if is_test:
            return Typed(BOOL, lambda frame: name in frame[0].attributes[domain])

        def tried(frame: Frame) -> Value:
            of_domain = frame[0].attributes[domain]
            return Optional((of_domain[name],)) if name in of_domain else NONE

        return Typed(optional_of(DYN), self._charged(tried, 4))

    def _index(self, node: Index) -> Typed:
        known = self._known_attribute(node)
        if known is not None:
            return known
        operand, key = self._compile(node.operand), self._compile(node.key)
        of = operand.type
        is_optional = node.is_optional
        if of.name == "optional_type":
            of, is_optional = of.parameters[0], True
        if of == DYN:
            value = UNBOUND if is_optional else DYN
        elif of.name == "list" and suits(INT, key.type, {}):
            value = of.parameters[0]
        elif of.name == "map" and suits(of.parameters[0], key.type, {}):
            value = of.parameters[1]
        else:
            raise self._no_overload(node, "_[_]", [of, key.type])
        if is_optional:
            return Typed(optional_of(value), self._charged(optional_indexer(operand.run, key.run)))
        return Typed(value, self._charged(indexer(operand.run, key.run)))

    def _call(self, node: Call) -> Typed:
        name, arguments, is_member = self._called(node)
        self._mixing += name == "format"
        typed = [self._compile(argument) for argument in arguments]
        self._mixing -= name == "format"
        if name in _WITH_PATTERN and isinstance(arguments[1], Literal):
            self._check_pattern(arguments[1])
        result = self._apply(node, name, typed, is_member=is_member)
        if name in _FOLDED | _CONVERSIONS and all(each.is_constant for each in typed):
            return self._folded(node, name, result)
        return result

    def _called(self, node: Call) -> tuple[str, tuple[Node, ...], bool]:
        """The function's whole name, its arguments, and whether the first stands before the dot."""
        if node.target is None:
            return node.function, node.arguments, False
        if isinstance(node.target, Name) and not self._variables.get(node.target.name):
            name = f"{node.target.name}.{node.function}"
            if name in FUNCTIONS:
                return name, node.arguments, False
        return node.function, (node.target, *node.arguments), True

    def _check_pattern(self, node: Literal) -> None:
        if isinstance(node.value, str):
            try:
                compiled(node.value)
            except EvaluationError as problem:
                raise self._error(node, f"invalid matches argument: {problem}") from None

    def _folded(self, node: Node, name: str, typed: Typed) -> Typed:
        """A value that is the same each time."""
        try:
            value = typed.run([None, _FREE])
        except EvaluationError as problem:
            if name in _CONVERSIONS:
                raise self._error(node, f"invalid {name} argument: {problem}") from None
            return typed
        return Typed(
            typed.type,
            self._charged(lambda _: value),
            is_sure=typed.type != DYN,
            is_constant=name in _CONVERSIONS,
        )

    def _apply(self, node: Node, name: str, typed: list[Typed], *, is_member: bool) -> Typed:
        overloads = FUNCTIONS.get(name)
        if overloads is None:
            raise self._error(node, f"undeclared reference to '{name}' (in container '')")
        given = [each.type for each in typed]
        results: list[Type] = []
        suitable: list[Overload] = []
        for overload in overloads:
            bound: dict[str, Type] = {}
            if (
                overload.is_member == is_member
                and len(overload.parameters) == len(given)
                and all(
                    suits(wanted, each, bound)
                    for wanted, each in zip(overload.parameters, given, strict=True)
                )
            ):
                suitable.append(overload)
                results.append(filled_in(overload.result, bound))
        if not suitable:
            raise self._no_overload(node, name, given, is_member=is_member)
        # What is open takes the first meaning that it can have.
        is_one = any(map(is_open, given)) or all(each == results[0] for each in results)
        result = results[0] if is_one else DYN
        is_generic = suitable[0].result.name.startswith("?") or suitable[0].result.parameters
        return Typed(
            result,
            self._calling(suitable, typed),
            is_sure=is_one
            and result != DYN
            and (not is_generic or all(each.is_sure for each in typed)),
        )

    def _calling(self, suitable: list[Overload], typed: list[Typed]) -> Run:
        does = suitable[0].does
        if len({each.does for each in suitable}) > 1 or not suitable[0].checks_kinds:
            is_certain = len(suitable) == 1 and all(
                each.is_sure or wanted == DYN or wanted.name.startswith("?")
                for each, wanted in zip(typed, suitable[0].parameters, strict=True)
            )
            if not is_certain:
                does = _dispatcher(suitable)
        runs = tuple(each.run for each in typed)
        cost = suitable[0].cost if self._is_counted else None
        if self._is_counted:
            return _counted_call(does, runs, cost)
        match runs:
            case (one,):
                return lambda frame: does(one(frame))
            case (one, other):
                return lambda frame: does(one(frame), other(frame))
            case _:
                return lambda frame: does(*[run(frame) for run in runs])

    def _no_overload(
        self, node: Node, name: str, given: list[Type], *, is_member: bool = False
    ) -> CompileError:
        types = [f"'{each}'" for each in given]
        applied = f"{types[0]}.({', '.join(types[1:])})" if is_member else f"({', '.join(types)})"
        return self._error(node, f"found no matching overload for '{name}' applied to {applied}")

    def _chain(self, node: Chain) -> Typed:
        value = self._compile(node.first)
        for at, name, term in node.rest:
            place = Literal(at, None)
            value = self._apply(place, name, [value, self._compile(term)], is_member=False)
        return value

    def _logic(self, node: Logic) -> Typed:
        runs = tuple(
            self._condition(term, "_||_" if node.decisive else "_&&_") for term in node.terms
        )
        decisive = node.decisive

        def run(frame: Frame) -> Value:
            problem: EvaluationError | None = None
            for term in runs:
                try:
                    value = term(frame)
                except BudgetExceededError:
                    raise
                except EvaluationError as failure:
                    problem = problem or failure
                    continue
                if value is decisive:
                    return decisive
                if not isinstance(value, bool):
                    problem = problem or no_overload()
            if problem is not None:
                raise problem
            return not decisive

        return Typed(BOOL, run)

    def _condition(self, node: Node, used_by: str) -> Run:
        """Something that is to be true or false."""
        typed = self._compile(node)
        if typed.type not in (BOOL, DYN):
            raise self._no_overload(node, used_by, [typed.type])
        return typed.run

    def _conditional(self, node: Conditional) -> Typed:
        condition = self._condition(node.condition, "_?_:_")
        yes, no = self._compile(node.yes), self._compile(node.no)
        together = joined([yes.type, no.type])
        if together is None:
            raise self._no_overload(node, "_?_:_", [BOOL, yes.type, no.type])
        of_yes, of_no = yes.run, no.run

        def run(frame: Frame) -> Value:
            decided = condition(frame)
            if decided is True:
                return of_yes(frame)
            if decided is False:
                return of_no(frame)
            raise no_overload()

        return Typed(together, run)

    def _item(self, node: Node, *, is_optional: bool) -> Typed:
        """An element of a literal: what an optional one has, if anything."""
        typed = self._compile(node)
        if not is_optional:
            return typed
        if typed.type != DYN and typed.type.name != "optional_type":
            raise self._error(node, f"expected type 'optional_type' but found '{typed.type}'")
        inner = typed.type.parameters[0] if typed.type.parameters else DYN
        return Typed(inner, typed.run)

    def _joined(self, node: Node, types: list[Type]) -> Type:
        """The type of what stands side by side in a literal: one, but for what is formatted."""
        other = next((each for each in types if not is_same(types[0], each)), None)
        if other is not None and not self._mixing:
            raise self._error(node, f"expected type '{types[0]}' but found '{other}'")
        return joined(types) or DYN

    def _list(self, node: ListLiteral) -> Typed:
        items = [
            self._item(item, is_optional=index in node.optional)
            for index, item in enumerate(node.items)
        ]
        types = [item.type for item in items]
        its_type = list_of(self._joined(node, types))
        runs = tuple(item.run for item in items)
        if not node.optional:
            return Typed(
                its_type,
                self._charged(lambda frame: tuple([run(frame) for run in runs]), _LIST_COST),
            )
        optional = node.optional

        def run(frame: Frame) -> Value:
            made: list[Value] = []
            for index, each in enumerate(runs):
                value = each(frame)
                made += _present(value) if index in optional else (value,)
            return tuple(made)

        return Typed(its_type, self._charged(run, _LIST_COST))

    def _map(self, node: MapLiteral) -> Typed:
        keys = [self._compile(key) for key, _, _ in node.entries]
        values = [
            self._item(value, is_optional=is_optional) for _, value, is_optional in node.entries
        ]
        for key, (written, _, _) in zip(keys, node.entries, strict=True):
            if key.type.name not in ("dyn", "string", "int", "uint", "bool"):
                raise self._error(written, f"unsupported map key type '{key.type}'")
        its_type = map_of(
            self._joined(node, [key.type for key in keys]),
            self._joined(node, [value.type for value in values]),
        )
        entries = tuple(
            (key.run, value.run, is_optional)
            for key, value, (_, _, is_optional) in zip(keys, values, node.entries, strict=True)
        )

        def run(frame: Frame) -> Value:
            made: dict[Value, Value] = {}
            for key_of, value_of, is_optional in entries:
                key, value = key_of(frame), value_of(frame)
                if kind(key) not in ("string", "int", "uint", "bool"):
                    raise EvaluationError(f"unsupported key type: {kind(key)}")
                for each in _present(value) if is_optional else (value,):
                    if key in made:
                        raise EvaluationError(f"Failed with repeated key: {key}")
                    made[key] = each
            return made

        return Typed(its_type, self._charged(run, _MAP_COST))

    def _variable(self, name: str, its_type: Type) -> int:
        """A place for a variable, until `_leave`."""
        place = self._places
        self._places += 1
        self._variables.setdefault(name, []).append((place, its_type))
        return place

    def _leave(self, *names: str) -> None:
        for name in names:
            self._variables[name].pop()

    def _loop(self, node: Loop) -> Typed:
        over = self._compile(node.over)
        key, value = self._elements(node, over.type)
        single = key if over.type.name == "map" else value
        variables = (key, value) if len(node.names) > 1 else (single,)
        places = [
            self._variable(name, its_type)
            for name, its_type in zip(node.names, variables, strict=True)
        ]
        condition = self._condition(node.condition, node.kind.value) if node.condition else None
        body = self._compile(node.body) if node.body else None
        self._leave(*node.names)
        run = loops.loop(node.kind, over.run, places, condition, None if body is None else body.run)
        return Typed(self._loop_type(node, key, single, body), run)

    def _elements(self, node: Loop, over: Type) -> tuple[Type, Type]:
        """The types of index or key, and of value."""
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

    def _loop_type(self, node: Loop, key: Type, single: Type, body: Typed | None) -> Type:
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

    def _bind(self, node: Bind) -> Typed:
        value = self._compile(node.value)
        place = self._variable(node.name, value.type)
        self._bound[place] = value.run
        body = self._compile(node.body)
        self._leave(node.name)
        run_body = body.run

        def run(frame: Frame) -> Value:
            frame[place] = _NOT_YET
            return run_body(frame)

        return Typed(body.type, run)

    def _optional_map(self, node: OptionalMap) -> Typed:
        operand = self._compile(node.operand)
        if operand.type != DYN and operand.type.name != "optional_type":
            raise self._error(node, f"expected type 'optional_type' but found '{operand.type}'")
        inner = operand.type.parameters[0] if operand.type.parameters else DYN
        place = self._variable(node.name, inner)
        body = self._compile(node.body)
        self._leave(node.name)
        if node.is_flat and body.type != DYN and body.type.name != "optional_type":
            raise self._error(node, f"expected type 'optional_type' but found '{body.type}'")
        operand_of, run_body, is_flat = operand.run, body.run, node.is_flat

        def run(frame: Frame) -> Value:
            for value in _present(operand_of(frame)):
                frame[place] = value
                made = run_body(frame)
                return made if is_flat else Optional((made,))
            return NONE

        return Typed(body.type if is_flat else optional_of(body.type), run)


class _Free:
    """A budget that does not count: for what is worked out once."""

    def spend(self, cost: int) -> None:
        """Takes nothing."""


_FREE: Final = _Free()
_DEVICE_FIELDS: Final[dict[str, Run]] = {
    "driver": lambda frame: frame[0].driver,
    "attributes": lambda frame: frame[0].attributes,
    "capacity": lambda frame: frame[0].capacity,
    "allowMultipleAllocations": lambda frame: frame[0].allow_multiple_allocations,
}


_NOT_YET: Final = object()


def _variable(place: int) -> Run:
    return lambda frame: frame[place]


def _bound_variable(place: int, value: Run) -> Run:
    def run(frame: Frame) -> Value:
        if frame[place] is _NOT_YET:
            frame[place] = value(frame)
        return frame[place]

    return run


def _present(value: Value) -> tuple[Value, ...]:
    if not isinstance(value, Optional):
        raise no_overload()
    return value.values


def _dispatcher(suitable: list[Overload]) -> Callable[..., Value]:
    """Chooses among overloads by the kinds of the arguments, once for each combination."""
    chosen: dict[tuple[type, ...], Callable[..., Value] | None] = {}

    def dispatch(*arguments: Value) -> Value:
        types = tuple(map(type, arguments))
        if types not in chosen:
            kinds = [kind(argument) for argument in arguments]
            chosen[types] = next(
                (
                    overload.does
                    for overload in suitable
                    if all(map(may_be, kinds, overload.parameters))
                ),
                None,
            )
        does = chosen[types]
        if does is None:
            raise no_overload()
        return does(*arguments)

    return dispatch


def _counted_call(
    does: Callable[..., Value], runs: tuple[Run, ...], cost: Callable[..., int] | None
) -> Run:
    def run(frame: Frame) -> Value:
        arguments = [each(frame) for each in runs]
        if cost is None:
            frame[1].spend(1)
        else:
            try:
                price = cost(*arguments)
            except TypeError:
                price = 1  # of kinds that the overload is not for: the call will say so
            frame[1].spend(price)
        return does(*arguments)

    return run
