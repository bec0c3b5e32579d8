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


def _for_go(pattern: str) -> str:
    return re.sub(r"\\Z", "$", pattern)
