"""JSON schemas as Helm reads them."""

import re
from typing import Any


def inlined(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema without references, titles and defaults, whose patterns Go can compile.

    Pydantic refers to shared types; `settings` and the values around it have their own.
    """
    definitions = schema.get("$defs", {})

    def walked(node: Any, *, names: bool = False) -> Any:
        """names: the keys of the node are names of properties, not keywords."""
        if isinstance(node, list):
            return [walked(item) for item in node]
        if not isinstance(node, dict):
            return node
        if not names and "$ref" in node:
            target = definitions[node["$ref"].removeprefix("#/$defs/")]
            return walked({**target, **{k: v for k, v in node.items() if k != "$ref"}})
        result = {}
        for key, value in node.items():
            if names:
                result[key] = walked(value)
            elif key == "pattern":
                result[key] = _for_go(value)
            elif key == "patternProperties":
                result[key] = {_for_go(name): walked(each) for name, each in value.items()}
            elif key not in ("$defs", "title", "default"):
                result[key] = walked(value, names=key == "properties")
        return result

    inline: dict[str, Any] = walked(schema)
    return inline


def of_definition(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of a CustomResourceDefinition, as a JSON schema that admits no unknown fields."""
    result = {
        key: value
        for key, value in schema.items()
        if not key.startswith("x-kubernetes-") and key != "default"
    }
    if schema.get("x-kubernetes-int-or-string"):
        return {**result, "type": ["integer", "number", "string"]}
    if properties := schema.get("properties"):
        result["properties"] = {name: of_definition(each) for name, each in properties.items()}
        result["additionalProperties"] = False
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            result[key] = of_definition(schema[key])
    return result


def _for_go(pattern: str) -> str:
    return re.sub(r"\\Z", "$", pattern)
