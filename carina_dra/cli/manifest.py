"""Objects as people write them, in YAML or JSON files: what of it concerns devices.

What is of no concern (pods, namespaces) is passed over. What is wrong is told with its place: file,
document, field.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TextIO, TypeVar

import yaml

from carina_dra.resource import (
    DecodeError,
    DeviceClass,
    DeviceTaintRule,
    JsonObject,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
    decode,
)

T = TypeVar("T")
_API_VERSION: Final = "resource.k8s.io/v1"
_GROUP: Final = "resource.k8s.io/"


class ManifestError(ValueError):
    """Something that was written is not what it should be: names file, document and field."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """Objects that concern devices, in the order in which they were written."""

    nodes: list[JsonObject] = field(default_factory=list)
    """core/v1 Node, as it is."""
    slices: list[ResourceSlice] = field(default_factory=list)
    classes: list[DeviceClass] = field(default_factory=list)
    claims: list[ResourceClaim] = field(default_factory=list)
    """Claims, and one for each template, under its name."""
    rules: list[DeviceTaintRule] = field(default_factory=list)

    def read(self, place: str, source: TextIO) -> None:
        """Adds the objects of a file.

        Raises:
            ManifestError: naming `place`, the document and what is wrong with it.
        """
        documents = yaml.safe_load_all(source)
        for number in _counting():
            where = f"{place}, document {number}"
            try:
                document = next(documents, _END)
            except (yaml.YAMLError, UnicodeDecodeError) as error:
                raise ManifestError(f"{where}: is not YAML: {error}") from error
            if document is _END:
                return
            if document is not None:
                self.add(where, document)

    def add(self, where: str, document: object) -> None:
        """Adds an object, or those of a list.

        Raises:
            ManifestError: naming `where` and what is wrong.
        """
        if not isinstance(document, Mapping):
            raise ManifestError(f"{where}: is {document!r}, not an object; write kind and metadata")
        kind = document.get("kind")
        if not isinstance(kind, str):
            raise ManifestError(f"{where}: has no kind; write kind: ResourceClaim, for example")
        if kind.endswith("List") and "items" in document:
            for index, item in enumerate(document["items"] or ()):
                self.add(f"{where}, items[{index}]", _with_kind(item, document, kind))
            return
        if kind == "Node":
            self._add_node(where, document)
            return
        version = str(document.get("apiVersion", ""))
        if not version.startswith(_GROUP):
            return
        if version != _API_VERSION:
            raise ManifestError(f"{where}: apiVersion is {version}; write {_API_VERSION}")
        self._add_resource(where, kind, document)

    def _add_node(self, where: str, document: JsonObject) -> None:
        metadata = document.get("metadata")
        if not isinstance(metadata, Mapping) or not isinstance(metadata.get("name"), str):
            raise ManifestError(f"{where}: Node: metadata.name is missing")
        name = f"{where}: Node {metadata['name']}"
        labels = metadata.get("labels") or {}
        if not isinstance(labels, Mapping) or not all(
            isinstance(text, str) for pair in labels.items() for text in pair
        ):
            raise ManifestError(f"{name}: metadata.labels is {labels!r}; write texts by names")
        if not isinstance(document.get("status") or {}, Mapping):
            raise ManifestError(f"{name}: status is {document['status']!r}, not an object")
        self.nodes.append(document)

    def _add_resource(self, where: str, kind: str, document: JsonObject) -> None:
        match kind:
            case "ResourceSlice":
                self.slices.append(_decoded(where, ResourceSlice, document))
            case "DeviceClass":
                self.classes.append(_decoded(where, DeviceClass, document))
            case "ResourceClaim":
                self.claims.append(_decoded(where, ResourceClaim, document))
            case "ResourceClaimTemplate":
                template = _decoded(where, ResourceClaimTemplate, document)
                self.claims.append(
                    ResourceClaim(metadata=template.metadata, spec=template.spec.spec)
                )
            case "DeviceTaintRule":
                self.rules.append(_decoded(where, DeviceTaintRule, document))
            case _:
                pass  # nothing that allocation depends on


def read_files(paths: Iterable[Path], standard_input: TextIO) -> Manifest:
    """Reads files; `-` is the standard input.

    Raises:
        ManifestError: a file cannot be read, or something in it is wrong.
    """
    manifest = Manifest()
    for path in paths:
        if str(path) == "-":
            manifest.read("standard input", standard_input)
            continue
        try:
            with path.open(encoding="utf-8") as source:
                manifest.read(str(path), source)
        except OSError as error:
            raise ManifestError(f"{path}: cannot be read: {error.strerror}") from error
    return manifest


_END: Final = object()


def _counting() -> Iterator[int]:
    number = 0
    while True:
        number += 1
        yield number


def _with_kind(item: object, of: JsonObject, kind: str) -> object:
    """An item of a typed list need not say what it is."""
    if not isinstance(item, Mapping) or "kind" in item or kind == "List":
        return item
    known: dict[str, Any] = {"kind": kind.removesuffix("List"), "apiVersion": of.get("apiVersion")}
    return {**known, **item}


def _decoded(where: str, kind: type[T], document: JsonObject) -> T:
    try:
        return decode(kind, document)
    except DecodeError as error:
        raise ManifestError(f"{where}: {error}") from error
