"""Objects that allocation depends on, from files that people write and from clusters.

Files are read strictly. Each object must be of a kind that exists in the DRA API or the core API,
have only fields that the API has, have values that the API server accepts, and occur once. Objects
of the core API other than Nodes, and of other API groups, are counted and ignored. An error names
the file, the document and the field.

Objects of a cluster were accepted by its API server, which may be newer: what is unknown in them is
kept.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import BinaryIO, ClassVar, Final, TypeAlias, TypeVar

from carina_dra.manifests.document import decode_text, documents
from carina_dra.manifests.validation import problems
from carina_dra.manifests.yaml_document import DocumentError
from carina_dra.resource import (
    DecodeError,
    DeviceClass,
    DeviceTaintRule,
    JsonObject,
    ObjectMeta,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
    decode,
)
from carina_dra.resource.errors import did_you_mean
from carina_dra.resource.schema import Struct

T = TypeVar("T")
_Resource: TypeAlias = (
    DeviceClass | DeviceTaintRule | ResourceClaim | ResourceClaimTemplate | ResourceSlice
)
CLUSTER: Final = "cluster"
"""The location of the objects of a cluster."""
_GROUP: Final = "resource.k8s.io"
_API_VERSION: Final = "resource.k8s.io/v1"
_CORE: Final = "v1"
_LIST: Final = "List"
_IGNORED_KINDS: Final = frozenset({"ResourcePoolStatusRequest"})
"""Of the DRA API: allocation does not depend on them."""
_TYPES: Final[dict[str, type[_Resource]]] = {
    "DeviceClass": DeviceClass,
    "DeviceTaintRule": DeviceTaintRule,
    "ResourceClaim": ResourceClaim,
    "ResourceClaimTemplate": ResourceClaimTemplate,
    "ResourceSlice": ResourceSlice,
}
_NAMESPACED: Final = frozenset({"ResourceClaim", "ResourceClaimTemplate"})
_LIST_FIELDS: Final = ("apiVersion", "kind", "metadata", "items")
_CORE_KINDS: Final = frozenset(
    {
        "Binding",
        "ComponentStatus",
        "ConfigMap",
        "Endpoints",
        "Event",
        "LimitRange",
        "Namespace",
        "Node",
        "PersistentVolume",
        "PersistentVolumeClaim",
        "Pod",
        "PodTemplate",
        "ReplicationController",
        "ResourceQuota",
        "Secret",
        "Service",
        "ServiceAccount",
    }
)
"""The objects of core/v1, which has not had a new one since Kubernetes 1.0."""


class ManifestError(ValueError):
    """A file or an object in it is not valid. The message names file, document and field."""


@dataclass(frozen=True, slots=True)
class Node(Struct):
    """The parts of a core/v1 Node that are read; spec and status are free."""

    API_VERSION: ClassVar[str] = "v1"
    KIND: ClassVar[str] = "Node"

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: JsonObject = field(default_factory=dict)
    status: JsonObject = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _NodeStatus(Struct):
    declared_features: tuple[str, ...] = ()


@dataclass(slots=True)
class ManifestObjects:
    """The objects read so far, in the order in which they were written."""

    nodes: list[JsonObject] = field(default_factory=list)
    """core/v1 Node, not decoded."""
    slices: list[ResourceSlice] = field(default_factory=list)
    classes: list[DeviceClass] = field(default_factory=list)
    claims: list[ResourceClaim | ResourceClaimTemplate] = field(default_factory=list)
    rules: list[DeviceTaintRule] = field(default_factory=list)
    ignored: Counter[str] = field(default_factory=Counter)
    """The objects of other kinds, as `Pod (v1)`."""
    _locations: dict[tuple[str, str, str], str] = field(default_factory=dict)
    """Where each object was given, by kind, namespace and name."""

    def read(self, source: str, content: bytes) -> None:
        """Adds the objects of a file; `source` is its name in errors.

        Raises:
            ManifestError: the content is neither YAML nor JSON, or an object is not valid.
        """
        number = 1
        try:
            for document in documents(decode_text(content)):
                if document is not None:
                    self.add(f"{source}, document {number}", document)
                number += 1
        except DocumentError as error:
            raise ManifestError(f"{source}, document {number}: {error}") from None
        except RecursionError:
            raise ManifestError(f"{source}, document {number}: is nested too deeply") from None

    def add(self, location: str, document: object, *, strict: bool = True) -> None:
        """Adds an object, or the objects of a list; `location` is its place in errors.

        Raises:
            ManifestError: the object is not valid, or was added before.
        """
        if not isinstance(document, dict):
            raise ManifestError(
                f"{location}: is {document!r:.80}, not an object; write kind and metadata"
            )
        kind = _word(location, document, "kind", example="ResourceClaim")
        version = _word(location, document, "apiVersion", example=_API_VERSION)
        if not _is_read(location, kind, version):
            self.ignored[f"{kind} ({version})"] += 1
        elif kind.endswith(_LIST):
            for index, item in enumerate(_items(location, document)):
                place = f"{location}, items[{index}]"
                self.add(place, _with_kind(item, kind, version), strict=strict)
        elif kind == "Node":
            self._add_node(location, document, strict=strict)
        else:
            self._add_resource(location, _TYPES[kind], document, strict=strict)

    def _add_node(self, location: str, document: JsonObject, *, strict: bool) -> None:
        node = _decoded(location, Node, document, strict=strict)
        try:
            decode(_NodeStatus, node.status)
        except DecodeError as error:
            raise ManifestError(
                f"{location}: Node {node.metadata.name}: status.{error.path}: {error.problem}"
            ) from None
        if not node.metadata.name:
            raise ManifestError(f"{location}: Node: metadata.name is missing")
        self._register(location, "Node", node.metadata)
        self.nodes.append(document)

    def _add_resource(
        self, location: str, kind: type[_Resource], document: JsonObject, *, strict: bool
    ) -> None:
        resource = _decoded(location, kind, document, strict=strict)
        if strict:
            for path, problem in problems(resource):
                named = f"{kind.KIND} {resource.metadata.key}".rstrip()
                raise ManifestError(f"{location}: {named}: {path}: {problem}")
        self._register(location, kind.KIND, resource.metadata)
        match resource:
            case ResourceSlice():
                self.slices.append(resource)
            case DeviceClass():
                self.classes.append(resource)
            case ResourceClaim() | ResourceClaimTemplate():
                self.claims.append(resource)
            case DeviceTaintRule():
                self.rules.append(resource)

    def _register(self, location: str, kind: str, metadata: ObjectMeta) -> None:
        namespace = (metadata.namespace or "default") if kind in _NAMESPACED else ""
        key = metadata.key
        first = self._locations.get((kind, namespace, metadata.name))
        if first is None:
            self._locations[kind, namespace, metadata.name] = location
        elif location == CLUSTER:
            raise ManifestError(
                f"{first}: {kind} {key}: is also in the cluster; remove it from the file"
            )
        else:
            raise ManifestError(f"{location}: {kind} {key}: is also in {first}; remove one of them")


def read_files(paths: Iterable[Path], standard_input: BinaryIO | None) -> ManifestObjects:
    """Reads files; `-` is the standard input, which is None if it is closed.

    Raises:
        ManifestError: a file cannot be read, or is not valid.
    """
    objects = ManifestObjects()
    for path in paths:
        if str(path) != "-":
            source = str(path)
            try:
                content = path.read_bytes()
            except OSError as error:
                raise ManifestError(f"{path}: cannot be read: {error.strerror}") from error
        elif standard_input is None:
            raise ManifestError("standard input: is closed")
        else:
            source = "standard input"
            content = standard_input.read()
        objects.read(source, content)
    return objects


def _word(location: str, document: JsonObject, name: str, *, example: str) -> str:
    word = document.get(name)
    if not isinstance(word, str) or not word:
        raise ManifestError(f"{location}: has no {name}; write {name}: {example}, for example")
    return word


def _is_read(location: str, kind: str, version: str) -> bool:
    """Whether allocation depends on objects of this kind, or on those of a list.

    Raises:
        ManifestError: there is no such kind in the core API or the DRA API.
    """
    singular = kind.removesuffix(_LIST)
    group, _, _ = version.rpartition("/")
    if version == _CORE:
        if kind != _LIST and singular not in _CORE_KINDS:
            raise ManifestError(f"{location}: {_unknown_kind(singular, version)}")
        return kind == _LIST or singular == "Node"
    if group == _GROUP:
        if singular in _IGNORED_KINDS:
            return False
        if singular not in _TYPES:
            raise ManifestError(f"{location}: {_unknown_kind(singular, version)}")
        if version != _API_VERSION:
            raise ManifestError(f"{location}: apiVersion is {version}; write {_API_VERSION}")
        return True
    if not group or get_close_matches(group, [_GROUP], cutoff=0.8):
        remedy = did_you_mean(version, [_API_VERSION, _CORE])
        raise ManifestError(f"{location}: apiVersion is {version}, which does not exist; {remedy}")
    return False


def _unknown_kind(kind: str, version: str) -> str:
    if kind in _TYPES:
        return f"apiVersion of {kind} is {version}; write {_API_VERSION}"
    if kind == "Node":
        return f"apiVersion of Node is {version}; write {_CORE}"
    remedy = did_you_mean(kind, [*_TYPES, "Node"])
    return f"kind is {kind!r:.80}, which {version} does not have; {remedy}"


def _items(location: str, document: JsonObject) -> list[object]:
    """The items of a list object."""
    for name in document:
        if name not in _LIST_FIELDS:
            remedy = did_you_mean(name, _LIST_FIELDS)
            raise ManifestError(f"{location}: {name}: is not a field of a list; {remedy}")
    items = document.get("items")
    if items is None and "items" in document:  # kubectl's and Go's way to write an empty list
        return []
    if not isinstance(items, list):
        raise ManifestError(f"{location}: items is {items!r:.80}, not a list")
    return items


def _with_kind(item: object, kind: str, version: str) -> object:
    """The item of a list with its kind, which items of a typed list may leave out."""
    if not isinstance(item, dict) or kind == _LIST:
        return item
    return {"kind": kind.removesuffix(_LIST), "apiVersion": version, **item}


def _decoded(location: str, kind: type[T], document: JsonObject, *, strict: bool) -> T:
    try:
        return decode(kind, document, strict=strict)
    except DecodeError as error:
        raise ManifestError(f"{location}: {error}") from None
