"""StatefulSet (apps/v1): one by one if it is OrderedReady, all replicas if it is Parallel."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from carina_dra.resource.schema import Struct
from controller.observe.owner import (
    GroupPosition,
    GroupShape,
    Metadata,
    OwnerKind,
    OwnerType,
    Part,
    Parts,
    number,
    shape_reader,
    versions_of,
)

_POD_INDEX: Final = "apps.kubernetes.io/pod-index"


@dataclass(frozen=True, slots=True)
class _Spec(Struct):
    replicas: int = 1
    pod_management_policy: str = "OrderedReady"


def _shape(spec: _Spec, _: Metadata) -> GroupShape:
    """Pods that are created one after the other cannot wait for each other."""
    return Parts((Part("", spec.replicas if spec.pod_management_policy == "Parallel" else 1),))


def _place(labels: Mapping[str, str]) -> GroupPosition:
    return GroupPosition(rank=number(labels, _POD_INDEX))


STATEFUL_SET: Final = OwnerType(
    OwnerKind.STATEFUL_SET,
    versions_of("apps", "statefulsets", "StatefulSet", "v1"),
    shape_reader("StatefulSet", _Spec, _shape),
    _place,
)
