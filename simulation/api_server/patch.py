"""Merge patches (RFC 7386) and JSON patches (RFC 6902).

Pure functions: a patch and a body give a new body. They raise ValueError where the patch does not
apply.
"""

import copy
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from carina_dra.kube.body import Body


def merge(target: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def json_patch(target: Body, operations: Iterable[Body]) -> Any:
    """RFC 6902. A `test` that fails is a ValueError, too."""
    document: Any = copy.deepcopy(target)
    for operation in operations:
        document = _apply(document, operation)
    return document


def _apply(document: Any, operation: Body) -> Any:
    path = _pointer(operation["path"])
    match operation["op"]:
        case "add":
            return _add(document, path, operation["value"])
        case "remove":
            return _remove(document, path)
        case "replace":
            return _replace(document, path, operation["value"])
        case "move":
            source = _pointer(operation["from"])
            value = _read(document, source)
            return _add(_remove(document, source), path, value)
        case "copy":
            return _add(document, path, _read(document, _pointer(operation["from"])))
        case "test":
            if _read(document, path) != operation["value"]:
                raise ValueError(f"testing path {operation['path']} failed")
            return document
        case other:
            raise ValueError(f"unknown operation {other!r}")


def _pointer(text: str) -> list[str]:
    """RFC 6901."""
    if text and not text.startswith("/"):
        raise ValueError(f"path {text!r} does not begin with '/'")
    return [step.replace("~1", "/").replace("~0", "~") for step in text.split("/")[1:]]


def _read(document: Any, path: list[str]) -> Any:
    for step in path:
        document = document[_position(document, step)]
    return copy.deepcopy(document)


def _add(document: Any, path: list[str], value: Any) -> Any:
    value = copy.deepcopy(value)
    if not path:
        return value
    *parents, last = path
    container = document
    for step in parents:
        container = container[_position(container, step)]
    match container:
        case list():
            container.insert(len(container) if last == "-" else _index(last, container, 1), value)
        case dict():
            container[last] = value
        case _:
            raise ValueError(f"add operation does not apply: {'/'.join(path)} is not a container")
    return document


def _replace(document: Any, path: list[str], value: Any) -> Any:
    """As in the real API server, a missing field is added; a missing list item is an error."""
    with suppress(ValueError):
        document = _remove(document, path) if path else document
    return _add(document, path, value)


def _remove(document: Any, path: list[str]) -> Any:
    *parents, last = path
    container = document
    for step in parents:
        container = container[_position(container, step)]
    del container[_position(container, last)]
    return document


def _position(container: Any, step: str) -> Any:
    match container:
        case list():
            return _index(step, container, 0)
        case dict() if step in container:
            return step
        case _:
            raise ValueError(f"there is nothing at {step!r}")


def _index(step: str, container: list[Any], beyond: int) -> int:
    if not step.isdigit() or int(step) >= len(container) + beyond:
        raise ValueError(f"no position {step!r} in a list of {len(container)}")
    return int(step)
