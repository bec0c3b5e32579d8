"""The structural schema of a type (apiextensions.k8s.io/v1 JSONSchemaProps).

Descriptions are the docstrings of classes and of their fields; they are read from the source, since
Python keeps no docstring of a field.
"""

import ast
import inspect
import re
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime
from enum import Enum
from functools import cache
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints

from carina_dra.resource import JsonObject
from carina_dra.resource.schema import camel_case
from controller.engine.files.checked import Checked, Rule, WrittenAs
from controller.engine.files.value import codec_of

_PLAIN: Final[Mapping[Any, Mapping[str, Any]]] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer", "format": "int64"},
    datetime: {"type": "string", "format": "date-time"},
    JsonObject: {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
}


def schema_of(kind: Any) -> dict[str, Any]:
    """The schema of a type, without a description.

    Raises:
        TypeError: the type has no schema, or a field of it no docstring.
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if kind in _PLAIN:
        return dict(_PLAIN[kind])
    if origin is Annotated:
        return _annotated(arguments[0], arguments[1:])
    if origin in (Union, types.UnionType):
        (only,) = (member for member in arguments if member is not types.NoneType)
        return schema_of(only)
    if origin is tuple:
        return {"type": "array", "items": _described(arguments[0])}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {"type": "string", "enum": [member.value for member in kind]}
    if isinstance(kind, type):
        return _object(kind)
    raise TypeError(f"{kind} has no schema")


def description_of(cls: type) -> str:
    """The docstring of a class, as one text."""
    return _one_text(_without_errors(inspect.getdoc(cls) or ""))


def field_descriptions(cls: type) -> dict[str, str]:
    """The docstrings of the fields of a class, by the names of the fields."""
    (definition,) = (
        statement
        for statement in _tree(inspect.getmodule(cls)).body
        if isinstance(statement, ast.ClassDef) and statement.name == cls.__name__
    )
    found = {}
    for node, following in zip(definition.body, definition.body[1:], strict=False):
        match node, following:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str() as docstring)),
            ):
                found[name] = _one_text(inspect.cleandoc(docstring))
            case _:
                pass
    return found


def _annotated(base: Any, metadata: tuple[Any, ...]) -> dict[str, Any]:
    for form in (each.form for each in metadata if isinstance(each, WrittenAs)):
        return schema_of(form)
    (keywords,) = (each.schema for each in metadata if isinstance(each, Checked))
    if "type" in keywords or "x-kubernetes-int-or-string" in keywords:
        return dict(keywords)
    return {**schema_of(base), **keywords}


def _object(cls: type) -> dict[str, Any]:
    hints = get_type_hints(cls, include_extras=True)
    descriptions = field_descriptions(cls)
    properties, required = {}, []
    for field in fields(cls):
        if field.name not in descriptions:
            raise TypeError(f"{cls.__name__}.{field.name} has no docstring; write one")
        name = camel_case(field.name)
        properties[name] = {"description": descriptions[field.name], **schema_of(hints[field.name])}
        if field.default is MISSING and field.default_factory is MISSING:
            required.append(name)
        elif field.default is not MISSING and _is_worth_saying(field.default):
            properties[name]["default"] = codec_of(hints[field.name]).write(field.default)
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    if required:
        schema["required"] = required
    rules: tuple[Rule, ...] = getattr(cls, "RULES", ())
    if rules:
        schema["x-kubernetes-validations"] = [
            {"rule": rule.expression, "message": rule.message} for rule in rules
        ]
    return schema


def _is_worth_saying(default: object) -> bool:
    return default is not None and default != ()


def _described(kind: Any) -> dict[str, Any]:
    schema = schema_of(kind)
    if isinstance(kind, type) and is_dataclass(kind):
        return {"description": description_of(kind), **schema}
    return schema


@cache
def _tree(module: types.ModuleType) -> ast.Module:
    return ast.parse(inspect.getsource(module))


def _without_errors(docstring: str) -> str:
    return docstring.partition("\nRaises:")[0]


def _one_text(docstring: str) -> str:
    """Lines of a paragraph are joined; paragraphs are lines."""
    paragraphs = re.split(r"\n\s*\n", docstring.strip())
    return "\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
