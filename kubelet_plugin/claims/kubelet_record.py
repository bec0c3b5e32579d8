"""The kubelet's own record of claims: which claims the kubelet holds on this node.

The kubelet's DRA manager keeps its state in `dra_manager_state`, in its root folder. It adds a
claim there before it first calls NodePrepareResources for it, and removes the claim after
NodeUnprepareResources succeeded for the last pod, whichever driver's devices the claim has. So if
the record does not name a prepared claim, the kubelet has forgotten the claim and will not ask to
unprepare it.

The format is the same in Kubernetes 1.34 to 1.37: a JSON object with the string `Data`, which is
JSON itself, and its CRC-32 (pkg/kubelet/cm/dra/state/checkpoint.go). The releases differ only in
fields of the claims' drivers and devices, which are not read here. Any other format is an error: a
record read incorrectly could make the plugin unprepare a claim whose pod is running.
"""

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kubelet_plugin.claims.claim import ClaimReference

FILE_NAME: Final = "dra_manager_state"
"""The file's name in the kubelet's root folder (pkg/kubelet/cm/dra/manager.go)."""

_KIND: Final = "DRACheckpoint"
_API_VERSION: Final = "checkpoint.dra.kubelet.k8s.io/v1"


class KubeletRecordError(Exception):
    """The content is not a valid record; the message says why."""


@dataclass(frozen=True, slots=True)
class KubeletRecord:
    """The claims that the kubelet holds on this node, by UID."""

    claims: Mapping[str, ClaimReference]

    def holds(self, uid: str) -> bool:
        """Returns whether the kubelet may still ask to unprepare this claim.

        Any entry with the UID counts. An entry without pods is a claim that is not unprepared yet;
        an entry without this driver's devices is a claim that is not prepared yet.
        """
        return uid in self.claims


@dataclass(frozen=True, slots=True)
class UnreadableRecord:
    """The record cannot be read, so the kubelet's claims are not known."""

    reason: str


def parse_record(content: bytes) -> KubeletRecord:
    """Reads the file's content.

    Raises:
        KubeletRecordError: the content is damaged, or its format is not supported.
    """
    record = _fields(_json(content, "the record"), "the record", {"Data", "Checksum"})
    data, checksum = record["Data"], record["Checksum"]
    if not isinstance(data, str) or type(checksum) is not int:
        raise KubeletRecordError("Data must be a string, and Checksum an integer")
    actual = zlib.crc32(_bytes(data))
    if actual != checksum:
        raise KubeletRecordError(f"the checksum of Data is {actual}, but Checksum is {checksum}")
    return _parse_data(_json(data, "Data"))


def _parse_data(content: object) -> KubeletRecord:
    data = _fields(content, "Data", {"kind", "apiVersion", "ClaimInfoStateList"})
    version = data["kind"], data["apiVersion"]
    if version != (_KIND, _API_VERSION):
        raise KubeletRecordError(
            f"the record is of kind {version[0]!r} and apiVersion {version[1]!r}; only {_KIND} of "
            f"{_API_VERSION} is supported"
        )
    # Go writes a list that was never set as null.
    entries = [] if data["ClaimInfoStateList"] is None else data["ClaimInfoStateList"]
    if not isinstance(entries, list):
        raise KubeletRecordError("ClaimInfoStateList must be a list")
    claims = [_parse_claim(entry, f"ClaimInfoStateList[{i}]") for i, entry in enumerate(entries)]
    return KubeletRecord({claim.uid: claim for claim in claims})


def _parse_claim(entry: object, path: str) -> ClaimReference:
    if not isinstance(entry, dict):
        raise KubeletRecordError(f"{path} must be an object")
    return ClaimReference(
        uid=_name(entry, path, "ClaimUID"),
        namespace=_name(entry, path, "Namespace"),
        name=_name(entry, path, "ClaimName"),
    )


def _name(entry: Mapping[str, object], path: str, field: str) -> str:
    value = entry.get(field)
    if not isinstance(value, str) or not value:
        raise KubeletRecordError(f"{path}.{field} must be a string that is not empty")
    return value


def _fields(content: object, what: str, fields: set[str]) -> Mapping[str, Any]:
    """Returns an object with exactly these fields: an unknown field could contain claims."""
    if not isinstance(content, dict):
        raise KubeletRecordError(f"{what} must be an object")
    if content.keys() != fields:
        raise KubeletRecordError(
            f"{what} must have the fields {', '.join(sorted(fields))}, but has "
            f"{', '.join(sorted(content)) or 'none'}"
        )
    return content


def _json(content: bytes | str, what: str) -> object:
    try:
        value: object = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise KubeletRecordError(f"{what} is not JSON: {error}") from error
    return value


def _bytes(data: str) -> bytes:
    try:
        return data.encode()
    except UnicodeEncodeError as error:
        raise KubeletRecordError(f"Data is not valid Unicode: {error}") from error
