"""The raw JSON object as the API server sends it, with the members that every object has.

Only what access to the API needs is read here. Code that works with an object's content parses the
`Body` into a typed object and passes that on.
"""

import json
import re
from typing import Any, Final, NamedTuple, Self, TypeAlias

_DEEPEST: Final = 200
"""Levels that are read of what Python's parser cannot follow."""
_STRUCTURE: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[{]|[\]}]')
"""Strings, and the brackets outside of them. Possessive, since strings may be long."""

Body: TypeAlias = dict[str, Any]


class ObjectKey(NamedTuple):
    """The namespace and name of an object.

    The namespace of a cluster-scoped object is empty.
    """

    namespace: str
    name: str

    @classmethod
    def read(cls, text: str) -> Self:
        """The key that is written so."""
        namespace, _, name = text.rpartition("/")
        return cls(namespace, name)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def parse_json(content: bytes) -> object:
    """Reads an answer of the API server.

    Users can write objects of 10,000 levels, which Python's parser cannot follow. What is too deep
    in them is read as a string that says so: one such object must not hide all others of a list, or
    what comes after it in a watch.

    Raises:
        ValueError: it is not JSON.
    """
    try:
        value: object = json.loads(content)
    except RecursionError:
        value = json.loads(_shallow(content))
    return value


def _shallow(content: bytes) -> bytes:
    """The JSON without what is nested too deeply, of which only strings and brackets are read."""
    parts: list[bytes] = []
    depth = copied = 0
    for token in _STRUCTURE.finditer(content):
        bracket = token.group()
        if bracket in b"[{":
            depth += 1
            if depth == _DEEPEST + 1:
                parts.append(content[copied : token.start()])
                copied = len(content)  # unless it ends
        elif bracket in b"]}":
            if depth == _DEEPEST + 1:
                parts.append(b'"nested too deeply to be read"')
                copied = token.end()
            depth -= 1
    return b"".join((*parts, content[copied:]))


def key_of(body: Body) -> ObjectKey:
    """The key of an object.

    Raises:
        KeyError: the object has no name.
    """
    metadata = body["metadata"]
    return ObjectKey(metadata.get("namespace", ""), metadata["name"])


def resource_version_of(body: Body) -> str:
    """The version of an object or of a list; empty if it was never stored."""
    version: str = body.get("metadata", {}).get("resourceVersion", "")
    return version
