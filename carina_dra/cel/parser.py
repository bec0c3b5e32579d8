"""Parses an expression (CEL specification, "Syntax" and "Macros")."""

import re
from collections.abc import Callable
from typing import Final

from carina_dra.cel.budget import SHORT
from carina_dra.cel.device_path import device_domain
from carina_dra.cel.errors import CompileError
from carina_dra.cel.lexer import RESERVED, TokenKind, Word, error, words
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
from carina_dra.cel.values import INT64_MAX

_MAX_DEPTH: Final = 60
"""The maximal nesting. A level takes eleven of Python's 1,000 stack frames; cel-go allows 250."""
_MAX_LENGTH: Final = 250
"""The maximal number of selections and calls on one operand, as in cel-go."""
_LEVELS: Final = (
    {"<": "_<_", "<=": "_<=_", ">": "_>_", ">=": "_>=_", "==": "_==_", "!=": "_!=_", "in": "@in"},
    {"+": "_+_", "-": "_-_"},
    {"*": "_*_", "/": "_/_", "%": "_%_"},
)
"""Left-associative operators, those of lowest precedence first."""


def parse(text: str) -> tuple[SyntaxNode, bool]:
    """The syntax tree of an expression, and whether its cost must be counted.

    Raises:
        CompileError: the text is not an expression.
    """
    parser = _Parser(text)
    return parser.parse(), parser.is_costly


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._words = words(text)
        self._next = 0
        self._depth = 0
        self.is_costly = len(text) > SHORT
        """Whether it has more than operators and functions that take linear time."""

    def parse(self) -> SyntaxNode:
        node = self._expression()
        word = self._word
        if word.kind is not TokenKind.END:
            raise self._error(word.at, f"Syntax error: mismatched input {word.text!r}")
        return node

    @property
    def _word(self) -> Word:
        return self._words[self._next]

    def _error(self, at: int, problem: str) -> CompileError:
        return error(self._text, at, problem)

    def _is(self, sign: str) -> bool:
        word = self._word
        return word.kind is TokenKind.SIGN and word.text == sign

    def _take(self, sign: str) -> bool:
        if self._is(sign):
            self._next += 1
            return True
        return False

    def _expect(self, sign: str) -> None:
        if not self._take(sign):
            word = self._word
            raise self._error(word.at, f"Syntax error: {word.text!r}, expecting {sign!r}")

    def _expression(self) -> SyntaxNode:
        self._depth += 1
        at = self._word.at
        if self._depth > _MAX_DEPTH:
            raise self._error(at, f"expression recursion limit exceeded: {_MAX_DEPTH}")
        node = self._logic("||", decisive=True)
        if self._is("?"):
            at = self._word.at
            self._next += 1
            yes = self._logic("||", decisive=True)
            self._expect(":")
            node = Conditional(at, node, yes, self._expression())
        self._depth -= 1
        return node

    def _logic(self, sign: str, *, decisive: bool) -> SyntaxNode:
        at = self._word.at
        terms = [self._logic("&&", decisive=False) if decisive else self._chain(0)]
        while self._take(sign):
            terms.append(self._logic("&&", decisive=False) if decisive else self._chain(0))
        return terms[0] if len(terms) == 1 else Logic(at, decisive, tuple(terms))

    def _chain(self, level: int) -> SyntaxNode:
        if level == len(_LEVELS):
            return self._unary()
        first = self._chain(level + 1)
        rest: list[tuple[int, str, SyntaxNode]] = []
        while self._word.kind is TokenKind.SIGN and self._word.text in _LEVELS[level]:
            word = self._word
            self._next += 1
            rest.append((word.at, _LEVELS[level][word.text], self._chain(level + 1)))
        return Chain(first.at, first, tuple(rest)) if rest else first

    def _unary(self) -> SyntaxNode:
        at = self._word.at
        for sign, function in (("!", "!_"), ("-", "-_")):
            count = 0
            while self._is(sign):
                if sign == "-" and self._words[self._next + 1].kind is TokenKind.INTEGER:
                    break
                if sign == "-" and isinstance(self._words[self._next + 1].value, float):
                    break
                self._next += 1
                count += 1
            if count:
                node = self._postfix()
                return FunctionCall(at, function, None, (node,)) if count % 2 else node
        return self._postfix()

    def _postfix(self) -> SyntaxNode:
        node = self._primary()
        length = 0
        while True:
            at = self._word.at
            if self._take("."):
                node = self._member(at, node)
            elif self._take("["):
                is_optional = self._take("?")
                node = Index(at, node, self._expression(), is_optional)
                self._expect("]")
            elif self._is("{"):
                raise self._error(at, "undeclared reference to a message type")
            else:
                return node
            length += 1
            if length > _MAX_LENGTH:
                raise self._error(at, f"expression recursion limit exceeded: {_MAX_LENGTH}")

    def _member(self, at: int, operand: SyntaxNode) -> SyntaxNode:
        is_optional = self._take("?")
        word = self._word
        if word.kind is not TokenKind.NAME:
            raise self._error(word.at, f"Syntax error: {word.text!r}, expecting a name")
        self._next += 1
        if not is_optional and self._is("("):
            call_at = self._word.at
            return self._call(call_at, word.text, operand, self._arguments())
        return Select(at, operand, word.text, is_optional)

    def _arguments(self) -> tuple[SyntaxNode, ...]:
        self._expect("(")
        return self._items(")")

    def _items(self, end: str) -> tuple[SyntaxNode, ...]:
        items: list[SyntaxNode] = []
        while not self._take(end):
            items.append(self._expression())
            if not self._is(end):
                self._expect(",")
                if end == ")" and self._is(end):
                    raise self._error(self._word.at, "Syntax error: an argument is missing")
        return tuple(items)

    def _primary(self) -> SyntaxNode:
        word = self._word
        self._next += 1
        if word.kind is TokenKind.LITERAL:
            return Literal(word.at, word.value)
        if word.kind is TokenKind.INTEGER:
            if isinstance(word.value, int) and word.value > INT64_MAX:
                raise self._error(word.at, "invalid int literal")
            return Literal(word.at, word.value)
        return self._name(word) if word.kind is TokenKind.NAME else self._bracketed(word)

    def _bracketed(self, word: Word) -> SyntaxNode:
        """A primary expression that begins with a sign."""
        match word.text:
            case "(":
                node = self._expression()
                self._expect(")")
                return node
            case "[":
                return self._list(word.at)
            case "{":
                return self._map(word.at)
            case "-":
                return self._negative(word.at)
            case "." if self._word.kind is TokenKind.NAME:
                name = self._word
                self._next += 1
                return self._name(name)
            case _:
                raise self._error(word.at, f"Syntax error: mismatched input {word.text!r}")

    def _negative(self, at: int) -> SyntaxNode:
        word = self._word
        self._next += 1
        if isinstance(word.value, (int, float)):
            return Literal(at, -word.value)
        raise self._error(word.at, f"Syntax error: mismatched input {word.text!r}")

    def _name(self, word: Word) -> SyntaxNode:
        if word.text in RESERVED:
            raise self._error(word.at, f"reserved identifier: {word.text}")
        if self._is("("):
            at = self._word.at
            return self._call(at, word.text, None, self._arguments())
        return Name(word.at, word.text)

    def _list(self, at: int) -> SyntaxNode:
        items: list[SyntaxNode] = []
        optional: set[int] = set()
        while not self._take("]"):
            if self._take("?"):
                optional.add(len(items))
            items.append(self._expression())
            if not self._is("]"):
                self._expect(",")
        return ListLiteral(at, tuple(items), frozenset(optional))

    def _map(self, at: int) -> SyntaxNode:
        entries: list[tuple[SyntaxNode, SyntaxNode, bool]] = []
        while not self._take("}"):
            is_optional = self._take("?")
            key = self._expression()
            self._expect(":")
            entries.append((key, self._expression(), is_optional))
            if not self._is("}"):
                self._expect(",")
        return MapLiteral(at, tuple(entries))

    def _call(
        self, at: int, function: str, target: SyntaxNode | None, arguments: tuple[SyntaxNode, ...]
    ) -> SyntaxNode:
        """A call, or the expansion of a macro."""
        self.is_costly |= not _is_cheap(function, target, arguments)
        if target is None:
            if function == "has" and len(arguments) == 1:
                return self._has(at, arguments[0])
            return FunctionCall(at, function, None, arguments)
        if isinstance(target, Name) and (target.name, function) == ("cel", "bind"):
            if len(arguments) != 3:
                return FunctionCall(at, function, target, arguments)
            name = self.variable(arguments[0])
            return Bind(at, name, arguments[1], arguments[2])
        macro = _MACROS.get((function, len(arguments)))
        if macro is None:
            return FunctionCall(at, function, target, arguments)
        return macro(self, at, target, arguments)

    def _has(self, at: int, argument: SyntaxNode) -> SyntaxNode:
        if not isinstance(argument, Select) or argument.is_test or argument.is_optional:
            raise self._error(at, "invalid argument to has() macro")
        return Select(at, argument.operand, argument.field, is_test=True)

    def variable(self, node: SyntaxNode) -> str:
        """The name of a macro's variable."""
        if not isinstance(node, Name):
            raise self._error(node.at, "argument must be a simple name")
        return node.name

    def loop(
        self,
        kind: LoopKind,
        at: int,
        over: SyntaxNode,
        names: tuple[SyntaxNode, ...],
        condition: SyntaxNode | None,
        body: SyntaxNode | None,
    ) -> SyntaxNode:
        """A macro that iterates."""
        self.is_costly = True
        variables = tuple(self.variable(name) for name in names)
        if len(set(variables)) < len(variables):
            raise self._error(names[1].at, "duplicate variable name")
        return Comprehension(at, kind, over, variables, condition, body)


_CHEAP: Final = frozenset(
    {
        "add",
        "asApproximateFloat",
        "asInteger",
        "bool",
        "bytes",
        "compareTo",
        "contains",
        "double",
        "dyn",
        "endsWith",
        "first",
        "has",
        "hasValue",
        "includes",
        "int",
        "isGreaterThan",
        "isInteger",
        "isLessThan",
        "isQuantity",
        "isSemver",
        "last",
        "lowerAscii",
        "major",
        "minor",
        "none",
        "of",
        "ofNonZeroValue",
        "or",
        "orValue",
        "patch",
        "quantity",
        "semver",
        "sign",
        "size",
        "startsWith",
        "string",
        "sub",
        "trim",
        "type",
        "uint",
        "upperAscii",
        "value",
    }
)
"""Functions that take time linear in their arguments, and whose results are not larger."""
_SHORT_PATTERN: Final = 100
_PATTERN_THAT_GROWS: Final = re.compile(r"[{]|\\[pP]|\(\?")
"""Repetitions, Unicode classes and flags make a program much larger than the pattern."""


def _is_cheap(function: str, target: SyntaxNode | None, arguments: tuple[SyntaxNode, ...]) -> bool:
    """Whether a call needs no count of its cost in a short expression."""
    if isinstance(target, Name) and target.name == "sets":
        return False
    match function, arguments:
        case "bind", (_, value, _):
            return device_domain(value) is not None
        case "matches", (*_, Literal(value=str() as pattern)):
            return len(pattern) <= _SHORT_PATTERN and not _PATTERN_THAT_GROWS.search(pattern)
        case _:
            return function in _CHEAP


_Macro = Callable[[_Parser, int, SyntaxNode, tuple[SyntaxNode, ...]], SyntaxNode]


def _test(kind: LoopKind, names: int) -> _Macro:
    """A macro whose last argument is a condition."""

    def expand(
        parser: _Parser, at: int, over: SyntaxNode, arguments: tuple[SyntaxNode, ...]
    ) -> SyntaxNode:
        return parser.loop(kind, at, over, arguments[:names], arguments[names], None)

    return expand


def _transform(kind: LoopKind, names: int) -> _Macro:
    """A macro whose last argument computes a value per element; a condition may precede it."""

    def expand(
        parser: _Parser, at: int, over: SyntaxNode, arguments: tuple[SyntaxNode, ...]
    ) -> SyntaxNode:
        condition = arguments[names] if len(arguments) > names + 1 else None
        return parser.loop(kind, at, over, arguments[:names], condition, arguments[-1])

    return expand


def _optional_map(*, is_flat: bool) -> _Macro:
    def expand(
        parser: _Parser, at: int, operand: SyntaxNode, arguments: tuple[SyntaxNode, ...]
    ) -> SyntaxNode:
        return OptionalMap(at, operand, parser.variable(arguments[0]), arguments[1], is_flat)

    return expand


_MACROS: Final[dict[tuple[str, int], _Macro]] = {
    ("all", 2): _test(LoopKind.ALL, 1),
    ("exists", 2): _test(LoopKind.EXISTS, 1),
    ("exists_one", 2): _test(LoopKind.EXISTS_ONE, 1),
    ("filter", 2): _test(LoopKind.FILTER, 1),
    ("map", 2): _transform(LoopKind.MAP, 1),
    ("map", 3): _transform(LoopKind.MAP, 1),
    ("all", 3): _test(LoopKind.ALL, 2),
    ("exists", 3): _test(LoopKind.EXISTS, 2),
    ("exists_one", 3): _test(LoopKind.EXISTS_ONE, 2),
    ("existsOne", 3): _test(LoopKind.EXISTS_ONE, 2),
    ("transformList", 3): _transform(LoopKind.MAP, 2),
    ("transformList", 4): _transform(LoopKind.MAP, 2),
    ("transformMap", 3): _transform(LoopKind.TRANSFORM_MAP, 2),
    ("transformMap", 4): _transform(LoopKind.TRANSFORM_MAP, 2),
    ("transformMapEntry", 3): _transform(LoopKind.TRANSFORM_ENTRY, 2),
    ("transformMapEntry", 4): _transform(LoopKind.TRANSFORM_ENTRY, 2),
    ("sortBy", 2): _transform(LoopKind.SORT_BY, 1),
    ("optMap", 2): _optional_map(is_flat=False),
    ("optFlatMap", 2): _optional_map(is_flat=True),
}
"""By name and number of arguments."""
