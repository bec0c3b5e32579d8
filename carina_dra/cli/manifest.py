"""Objects from YAML or JSON files that people write, as far as they concern devices.

Other objects (pods, namespaces) are skipped. An error names the file, the document and the field.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
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
    """A file or an object in it is not valid. The message names file, document and field."""


@dataclass(slots=True)
class ManifestObjects:
    """The objects read so far, in the order in which they were written."""

    nodes: list[JsonObject] = field(default_factory=list)
    """core/v1 Node, not decoded."""
    slices: list[ResourceSlice] = field(default_factory=list)
    classes: list[DeviceClass] = field(default_factory=list)
    claims: list[ResourceClaim] = field(default_factory=list)
    """Claims, and one for each template, with the template's name."""
    rules: list[DeviceTaintRule] = field(default_factory=list)

    def read(self, source: str, text: TextIO) -> None:
        """Adds the objects of a file; `source` is its name in errors.

        Raises:
            ManifestError: the text is not YAML, or a document is not valid.
        """
        documents = yaml.safe_load_all(text)
        for number in count(1):
            location = f"{source}, document {number}"
            try:
                document = next(documents)
            except StopIteration:
                return
            except (yaml.YAMLError, UnicodeDecodeError) as error:
                raise ManifestError(f"{location}: is not YAML: {error}") from error
            if document is not None:
                self.add(location, document)

    def add(self, location: str, document: object) -> None:
        """Adds an object, or the objects of a list; `location` is its place in errors.

        Raises:
            ManifestError: the object is not valid.
        """
        if not isinstance(document, Mapping):
            raise ManifestError(
                f"{location}: is {document!r}, not an object; write kind and metadata"
            )
        kind = document.get("kind")
        if not isinstance(kind, str):
            raise ManifestError(f"{location}: has no kind; write kind: ResourceClaim, for example")
        if kind.endswith("List") and "items" in document:
            for index, item in enumerate(document["items"] or ()):
                self.add(f"{location}, items[{index}]", _with_kind(item, document, kind))
            return
        if kind == "Node":
            self._add_node(location, document)
            return
        version = str(document.get("apiVersion", ""))
        if not version.startswith(_GROUP):
            return
        if version != _API_VERSION:
            raise ManifestError(f"{location}: apiVersion is {version}; write {_API_VERSION}")
        self._add_resource(location, kind, document)

    def _add_node(self, location: str, document: JsonObject) -> None:
        metadata = document.get("metadata")
        if not isinstance(metadata, Mapping) or not isinstance(metadata.get("name"), str):
            raise ManifestError(f"{location}: Node: metadata.name is missing")
        node = f"{location}: Node {metadata['name']}"
        labels = metadata.get("labels") or {}
        if not isinstance(labels, Mapping) or not all(
            isinstance(text, str) for label in labels.items() for text in label
        ):
            raise ManifestError(
                f"{node}: metadata.labels is {labels!r}; write a map of strings, with quotes "
                "around numbers and booleans"
            )
        if not isinstance(document.get("status") or {}, Mapping):
            raise ManifestError(f"{node}: status is {document['status']!r}, not an object")
        self.nodes.append(document)

    def _add_resource(self, location: str, kind: str, document: JsonObject) -> None:
        match kind:
            case "ResourceSlice":
                self.slices.append(_decoded(location, ResourceSlice, document))
            case "DeviceClass":
                self.classes.append(_decoded(location, DeviceClass, document))
            case "ResourceClaim":
                self.claims.append(_decoded(location, ResourceClaim, document))
            case "ResourceClaimTemplate":
                template = _decoded(location, ResourceClaimTemplate, document)
                self.claims.append(
                    ResourceClaim(metadata=template.metadata, spec=template.spec.spec)
                )
            case "DeviceTaintRule":
                self.rules.append(_decoded(location, DeviceTaintRule, document))
            case _:
                pass  # allocation does not depend on other kinds


def read_files(paths: Iterable[Path], standard_input: TextIO) -> ManifestObjects:
    """Reads files; `-` is the standard input.

    Raises:
        ManifestError: a file cannot be read, or is not valid.
    """
    objects = ManifestObjects()
    for path in paths:
        if str(path) == "-":
            objects.read("standard input", standard_input)
            continue
        try:
            with path.open(encoding="utf-8") as text:
                objects.read(str(path), text)
        except OSError as error:
            raise ManifestError(f"{path}: cannot be read: {error.strerror}") from error
    return objects


def _with_kind(item: object, typed_list: JsonObject, kind: str) -> object:
    """The item of a list with its kind, which items of a typed list may leave out."""
    if not isinstance(item, Mapping) or "kind" in item or kind == "List":
        return item
    known: dict[str, Any] = {
        "kind": kind.removesuffix("List"),
        "apiVersion": typed_list.get("apiVersion"),
    }
    return {**known, **item}


def _decoded(location: str, kind: type[T], document: JsonObject) -> T:
    try:
        return decode(kind, document)
    except DecodeError as error:
        raise ManifestError(f"{location}: {error}") from error
