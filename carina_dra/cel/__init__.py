"""CEL for DRA: the expressions of selectors and derived attributes, as Kubernetes 1.37 has them.

    selector = compile_selector('device.attributes["gpu.example.com"].model == "X"')
    selector.matches(CelDevice.of("gpu.example.com", device))

Whatever an expression does, `CelError` is all that ever comes of it.
"""

from carina_dra.cel.device import CelDevice
from carina_dra.cel.errors import BudgetExceededError, CelError, CompileError, EvaluationError
from carina_dra.cel.expression import (
    AttributeExpression,
    Selector,
    compile_attribute,
    compile_selector,
)

__all__ = [
    "AttributeExpression",
    "BudgetExceededError",
    "CelDevice",
    "CelError",
    "CompileError",
    "EvaluationError",
    "Selector",
    "compile_attribute",
    "compile_selector",
]
