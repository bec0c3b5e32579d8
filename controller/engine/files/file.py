"""Snapshots in files."""

import json
from collections.abc import Iterator

from carina_dra.manifests.document import decode_text, documents
from carina_dra.manifests.manifest import ManifestError
from carina_dra.manifests.yaml_document import DocumentError
from controller.engine.files.snapshot import SnapshotDocuments, snapshot_documents
from controller.engine.model.snapshot import Snapshot


def numbered_documents(source: str, content: bytes) -> Iterator[tuple[str, object]]:
    """The documents of a file that are not empty, each with its place for errors.

    Raises:
        ManifestError: the content is neither YAML nor JSON.
    """
    number = 1
    try:
        for document in documents(decode_text(content)):
            if document is not None:
                yield f"{source}, document {number}", document
            number += 1
    except DocumentError as error:
        raise ManifestError(f"{source}, document {number}: {error}") from None
    except RecursionError:
        raise ManifestError(f"{source}, document {number}: is nested too deeply") from None


def read_snapshot(source: str, content: bytes, *, strict: bool = True) -> Snapshot:
    """Reads the snapshot in a file; `source` is its name in errors.

    strict: whether unknown fields of Kubernetes objects are errors.

    Raises:
        ManifestError: the content is not a valid snapshot.
    """
    read = SnapshotDocuments(strict)
    for location, document in numbered_documents(source, content):
        read.add(location, document)
    return read.snapshot(source)


def write_snapshot(snapshot: Snapshot) -> str:
    """Writes a snapshot as JSON, a document a line."""
    return "".join(f"{json.dumps(each)}\n" for each in snapshot_documents(snapshot))
