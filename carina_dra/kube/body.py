"""The raw JSON object as the API server sends it, and what every object carries.

A body is read here only as far as access to the API needs it. What it means is for typed objects
to say, and a `Body` should not travel further than the code that makes them of it.
"""

from typing import Any, NamedTuple, TypeAlias

Body: TypeAlias = dict[str, Any]


class ObjectKey(NamedTuple):
    """What names an object among those of its resource.

    The namespace of a cluster-scoped object is empty.
    """

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def key_of(body: Body) -> ObjectKey:
    """The key of an object; KeyError where it has no name."""
    metadata = body["metadata"]
    return ObjectKey(metadata.get("namespace", ""), metadata["name"])


def resource_version_of(body: Body) -> str:
    """The version of an object, or of a list; empty where it was never stored."""
    version: str = body.get("metadata", {}).get("resourceVersion", "")
    return version
