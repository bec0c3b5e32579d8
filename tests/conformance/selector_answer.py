"""What Carina's CEL answers to an expression with a device of the conformance vectors."""

from collections.abc import Mapping
from typing import Any

from carina_dra.cel import CelDevice, CompileError, EvaluationError, compile_selector
from carina_dra.resource import Device, decode


def selector_answer(expression: str, device: Mapping[str, Any]) -> dict[str, Any]:
    """`match`, `compileError` or `runtimeError`, as the vectors have it."""
    content = {name: value for name, value in device.items() if name != "driver"}
    seen = CelDevice.of(device["driver"], decode(Device, {"name": "device", **content}))
    try:
        return {"match": compile_selector(expression).matches(seen)}
    except CompileError as error:
        return {"compileError": str(error)}
    except EvaluationError as error:
        return {"runtimeError": str(error)}
