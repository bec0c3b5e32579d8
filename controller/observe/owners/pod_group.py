"""PodGroup (scheduling.k8s.io): kube-scheduler takes all of its pods, or none.

It schedules no pod of the group while one of them has a gate, whatever `gang.minCount` is: so all
pods that there are start together.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from carina_dra.resource.schema import Struct
from controller.observe.owner import (
    AllMembers,
    GroupPosition,
    GroupShape,
    Metadata,
    OwnerKind,
    OwnerType,
    shape_reader,
    versions_of,
)


@dataclass(frozen=True, slots=True)
class _Gang(Struct):
    min_count: int = 1


@dataclass(frozen=True, slots=True)
class _Policy(Struct):
    gang: _Gang | None = None


@dataclass(frozen=True, slots=True)
class _Spec(Struct):
    scheduling_policy: _Policy = field(default_factory=_Policy)


def _shape(spec: _Spec, _: Metadata) -> GroupShape:
    gang = spec.scheduling_policy.gang
    return AllMembers(1 if gang is None else gang.min_count)


def _place(_: Mapping[str, str]) -> GroupPosition:
    return GroupPosition()


POD_GROUP: Final = OwnerType(
    OwnerKind.POD_GROUP,
    versions_of("scheduling.k8s.io", "podgroups", "PodGroup", "v1beta1", "v1alpha3", "v1alpha2"),
    shape_reader("PodGroup", _Spec, _shape),
    _place,
)
