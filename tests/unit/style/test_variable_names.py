"""A variable has the name of what it stands for: `one`, `each` and `of` say nothing of it."""

import ast
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[3]
_PACKAGES: Final = ("carina_dra", "controller", "gpu_proof", "kubelet_plugin", "sharing")
_GENERATED: Final = "pb"
_DENIED: Final = frozenset({"one", "each", "of"})
_SHORT: Final = 10
"""Lines below the first: in the body of such a function, any name is seen at once with its use."""


def _signature(arguments: ast.arguments) -> Iterator[ast.arg]:
    yield from chain(arguments.posonlyargs, arguments.args, arguments.kwonlyargs)
    yield from filter(None, (arguments.vararg, arguments.kwarg))


def _bound(node: ast.AST) -> Iterator[tuple[int, str]]:
    """The variables that a part of the syntax binds, by itself, with their lines."""
    match node:
        case ast.Lambda(args=arguments):
            yield from ((argument.lineno, argument.arg) for argument in _signature(arguments))
        case ast.FunctionDef(args=arguments) | ast.AsyncFunctionDef(args=arguments):
            yield from ((argument.lineno, argument.arg) for argument in _signature(arguments))
            if (node.end_lineno or node.lineno) - node.lineno > _SHORT:
                yield from chain.from_iterable(map(_assigned, ast.walk(node)))
        case ast.ClassDef(body=body):
            for field in body:
                if isinstance(field, ast.AnnAssign):
                    yield from _assigned(field.target)
        case _:
            pass


def _assigned(node: ast.AST) -> Iterator[tuple[int, str]]:
    match node:
        case ast.Name(id=name, ctx=ast.Store()):
            yield node.lineno, name
        case ast.MatchAs(name=str() as name) | ast.MatchStar(name=str() as name):
            yield node.lineno, name
        case _:
            pass


def _denied(source: str) -> list[tuple[int, str]]:
    found = {bound for node in ast.walk(ast.parse(source)) for bound in _bound(node)}
    return sorted((line, name) for line, name in found if name in _DENIED)


def test_no_variable_is_called_one_or_each_or_of() -> None:
    found = [
        f"{source.relative_to(_ROOT)}:{line}: {name}"
        for package in _PACKAGES
        for source in sorted((_ROOT / package).rglob("*.py"))
        if _GENERATED not in source.parts
        for line, name in _denied(source.read_text())
    ]
    assert not found, "\n".join(found)


def test_signatures_and_the_bodies_of_long_functions_count() -> None:
    body = "".join(f"    pod_{index} = {index}\n" for index in range(_SHORT))
    assert _denied("def add(one, *, each): ...\n") == [(1, "each"), (1, "one")]
    assert _denied("add = lambda *of: of\n") == [(1, "of")]
    assert _denied("class Maker:\n    of: str\n") == [(2, "of")]
    assert _denied(f"def names():\n{body}    return [one for one in pods]\n") == [(12, "one")]
    assert _denied("def names():\n    return [one for one in pods]\n") == []
