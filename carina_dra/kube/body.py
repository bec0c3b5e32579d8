"""The raw JSON object as the API server sends it, with the members that every object has.

Only what access to the API needs is read here. Code that works with an object's content parses the
`Body` into a typed object and passes that on.
"""

import json
from typing import Any, NamedTuple, TypeAlias

Body: TypeAlias = dict[str, Any]


class ObjectKey(NamedTuple):
    """The namespace and name of an object.

    The namespace of a cluster-scoped object is empty.
    """

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def parse_json(content: bytes) -> object:
    """Reads an answer of the API server.

    Raises:
        ValueError: it is not JSON, or nested more deeply than Python's parser can follow. Users can
            write such objects: the API server accepts 10,000 levels.
    """
    try:
        value: object = json.loads(content)
    except RecursionError as error:
        raise ValueError("the JSON is nested too deeply") from error
    return value


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
