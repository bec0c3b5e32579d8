"""The docstrings below constants, which Python does not keep."""

import ast
import inspect
from collections.abc import Mapping
from itertools import pairwise
from types import ModuleType


def constants(module: ModuleType) -> Mapping[str, str]:
    """The documented constants of a module with their docstrings, in the order of the module."""
    found = {}
    for statement, after in pairwise(ast.parse(inspect.getsource(module)).body):
        match statement, after:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str() as docstring)),
            ):
                found[name] = inspect.cleandoc(docstring)
            case _:
                pass
    return found
