"""The CustomResourceDefinitions of the API."""

from dataclasses import dataclass
from typing import Any, Final, Literal

from controller.api.pod_group import PodGroup
from controller.api.queue import Queue
from controller.api.schema import description_of, schema_of
from controller.engine.files.queue import API_VERSION

_GROUP, _VERSION = API_VERSION.split("/")


@dataclass(frozen=True, slots=True)
class Column:
    """A column that kubectl prints."""

    name: str
    path: str
    type: Literal["string", "integer", "date"] = "string"
    wide: bool = False
    """Whether it is printed with `-o wide` only."""

    def body(self) -> dict[str, Any]:
        """The column as the API has it."""
        body = {"name": self.name, "type": self.type, "jsonPath": self.path}
        return {**body, "priority": 1} if self.wide else body


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of the API."""

    type: type
    plural: str
    short_names: tuple[str, ...]
    scope: Literal["Cluster", "Namespaced"]
    columns: tuple[Column, ...]

    @property
    def name(self) -> str:
        """The name of the kind."""
        return self.type.__name__


_AGE: Final = Column("Age", ".metadata.creationTimestamp", "date")
KINDS: Final = (
    Kind(
        Queue,
        "queues",
        ("cq",),
        "Cluster",
        (
            Column("Parent", ".spec.parent"),
            Column("Priority", ".spec.priority", "integer", wide=True),
            Column("Allocated", ".status.resources[0].allocated"),
            Column("Fair Share", ".status.resources[0].fairShare"),
            Column("Running", ".status.groups.running", "integer"),
            Column("Pending", ".status.groups.pending", "integer"),
            Column("State", '.status.conditions[?(@.type=="Active")].reason'),
            _AGE,
        ),
    ),
    Kind(
        PodGroup,
        "podgroups",
        ("cpg",),
        "Namespaced",
        (
            Column("Queue", ".status.queue"),
            Column("Phase", ".status.phase"),
            Column("Placed", ".status.pods.placed", "integer"),
            Column("Pending", ".status.pods.pending", "integer"),
            Column("Message", '.status.conditions[?(@.type=="Admitted")].message', wide=True),
            _AGE,
        ),
    ),
)


def definition(kind: Kind) -> dict[str, Any]:
    """The CustomResourceDefinition of a kind."""
    schema = schema_of(kind.type)
    if "spec" not in schema.get("required", ()):
        schema["properties"]["spec"]["default"] = {}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{_GROUP}"},
        "spec": {
            "group": _GROUP,
            "scope": kind.scope,
            "names": {
                "kind": kind.name,
                "listKind": f"{kind.name}List",
                "plural": kind.plural,
                "singular": kind.name.lower(),
                "shortNames": list(kind.short_names),
                "categories": ["carina"],
            },
            "versions": [
                {
                    "name": _VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [column.body() for column in kind.columns],
                    "schema": {
                        "openAPIV3Schema": {
                            "description": description_of(kind.type),
                            **schema,
                        }
                    },
                }
            ],
        },
    }
