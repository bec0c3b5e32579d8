"""PersistentVolumeClaims and what else says where volumes can be, from their bodies.

The rules are those of kube-scheduler's VolumeBinding (`plugins/volumebinding/binder.go`, 1.37).
"""

import marshal
import sys
from functools import lru_cache
from typing import Any, Final

from carina_dra.quantity import Quantity
from carina_dra.resource import (
    DecodeError,
    JsonObject,
    NodeSelector,
    NodeSelectorOperator,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    decode,
)
from controller.engine.files.label_selector import plain_selector, read_selector
from controller.engine.model.label_selector import LabelSelector
from controller.engine.model.volume import (
    AttachLimits,
    StorageCapacity,
    StorageClass,
    Volume,
    VolumeClaim,
    VolumeClaimState,
    VolumeDriver,
)

_BOUND: Final = "pv.kubernetes.io/bind-completed"
_NODE: Final = "volume.kubernetes.io/selected-node"
_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
_EXCLUSIVE: Final = "ReadWriteOncePod"
_WAITS: Final = "WaitForFirstConsumer"
_NO_NODE: Final = NodeSelector(())
_FORMAT: Final = 2
"""Of marshal: equal values are equal bytes."""


def read_volume_claim(body: JsonObject) -> VolumeClaim:
    """Reads a PersistentVolumeClaim."""
    metadata, spec = body["metadata"], body.get("spec") or {}
    annotations = metadata.get("annotations") or {}
    class_name = annotations.get(_CLASS)
    if class_name is None:
        class_name = spec.get("storageClassName") or ""
    volume = spec.get("volumeName") or ""
    state = _state(
        metadata, body.get("status") or {}, is_bound=bool(volume and _BOUND in annotations)
    )
    is_bound = state is VolumeClaimState.BOUND
    return VolumeClaim(
        state,
        sys.intern(volume),
        sys.intern(class_name),
        0 if is_bound else _size((spec.get("resources") or {}).get("requests")),
        "" if is_bound else annotations.get(_NODE) or "",
        _EXCLUSIVE in (spec.get("accessModes") or ()),
    )


def read_volume(body: JsonObject) -> Volume:
    """Reads a PersistentVolume."""
    spec, status = body.get("spec") or {}, body.get("status") or {}
    required = (spec.get("nodeAffinity") or {}).get("required")
    is_available = status.get("phase") == "Available" and not spec.get("claimRef")
    return Volume(
        None if required is None else _selector(marshal.dumps(required, _FORMAT)),
        sys.intern((spec.get("csi") or {}).get("driver") or ""),
        sys.intern(spec.get("storageClassName") or ""),
        _size(spec.get("capacity")) if is_available else 0,
        is_available,
    )


def read_storage_class(body: JsonObject) -> StorageClass:
    """Reads a StorageClass."""
    topologies = body.get("allowedTopologies") or ()
    return StorageClass(
        body.get("provisioner") or "",
        body.get("volumeBindingMode") == _WAITS,
        NodeSelector(tuple(map(_topology, topologies))) if topologies else None,
    )


def read_storage_capacity(body: JsonObject) -> StorageCapacity:
    """Reads a CSIStorageCapacity."""
    topology = body.get("nodeTopology")
    size = body.get("maximumVolumeSize") or body.get("capacity")
    return StorageCapacity(
        sys.intern(body.get("storageClassName") or ""),
        _labels(topology),
        0 if size is None else Quantity.parse(str(size)).value(),
    )


def read_volume_driver(body: JsonObject) -> VolumeDriver:
    """Reads a CSIDriver."""
    return VolumeDriver(bool((body.get("spec") or {}).get("storageCapacity")))


def read_attach_limits(body: JsonObject) -> AttachLimits:
    """Reads a CSINode."""
    return AttachLimits(
        {
            driver["name"]: driver["allocatable"]["count"]
            for driver in (body.get("spec") or {}).get("drivers") or ()
            if (driver.get("allocatable") or {}).get("count") is not None
        }
    )


def _state(metadata: JsonObject, status: JsonObject, *, is_bound: bool) -> VolumeClaimState:
    if status.get("phase") == "Lost":
        return VolumeClaimState.LOST
    if metadata.get("deletionTimestamp"):
        return VolumeClaimState.DELETED
    return VolumeClaimState.BOUND if is_bound else VolumeClaimState.UNBOUND


def _size(amounts: JsonObject | None) -> int:
    text = (amounts or {}).get("storage")
    return 0 if text is None else Quantity.parse(str(text)).value()


@lru_cache(4096)
def _selector(required: bytes) -> NodeSelector:
    """The node affinity of volumes, which those of a zone or a node share."""
    try:
        return decode(NodeSelector, marshal.loads(required))  # noqa: S302 - written above
    except DecodeError:  # of a newer API
        return _NO_NODE


def _topology(term: JsonObject) -> NodeSelectorTerm:
    return NodeSelectorTerm(
        tuple(
            NodeSelectorRequirement(
                each["key"], NodeSelectorOperator.IN, tuple(each.get("values") or ())
            )
            for each in term.get("matchLabelExpressions") or ()
        )
    )


def _labels(selector: JsonObject | None) -> LabelSelector | None:
    try:
        plain: Any = plain_selector(selector)
    except ValueError:  # of a newer API
        return None
    return read_selector(plain)
