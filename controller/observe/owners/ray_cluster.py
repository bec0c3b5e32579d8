"""RayCluster (ray.io): a pod set for the head and for each worker group.

All replicas start together; with the autoscaler, the smallest number of them. RayJob and
RayService make a RayCluster each. Labels: `ray-operator/controllers/ray/utils/constant.go` of
KubeRay.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
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
    PodTemplate,
    shape_reader,
    versions_of,
)

_GROUP: Final = "ray.io/group"
_HEAD: Final = "headgroup"
"""The value of the label on the head."""


@dataclass(frozen=True, slots=True)
class _HeadGroup(Struct):
    template: PodTemplate = field(default_factory=PodTemplate)


@dataclass(frozen=True, slots=True)
class _WorkerGroup(Struct):
    group_name: str
    replicas: int | None = None
    min_replicas: int = 0
    max_replicas: int | None = None
    num_of_hosts: int = 1
    suspend: bool = False
    template: PodTemplate = field(default_factory=PodTemplate)


@dataclass(frozen=True, slots=True)
class _Spec(Struct):
    head_group_spec: _HeadGroup = field(default_factory=_HeadGroup)
    worker_group_specs: tuple[_WorkerGroup, ...] = ()
    enable_in_tree_autoscaling: bool = False


def _shape(spec: _Spec, _: Metadata) -> GroupShape:
    head = Part(_HEAD, 1, spec.head_group_spec.template.names_queue)
    groups = (
        Part(
            group.group_name,
            _replicas(group, autoscaling=spec.enable_in_tree_autoscaling) * group.num_of_hosts,
            group.template.names_queue,
        )
        for group in spec.worker_group_specs
    )
    return Parts((head, *groups))


def _replicas(group: _WorkerGroup, *, autoscaling: bool) -> int:
    """The bounds are applied as by `GetWorkerGroupDesiredReplicas` of KubeRay."""
    if group.suspend:
        return 0
    if autoscaling:
        return group.min_replicas
    replicas = max(group.replicas or 0, group.min_replicas)
    return replicas if group.max_replicas is None else min(replicas, group.max_replicas)


def _place(labels: Mapping[str, str]) -> GroupPosition:
    return GroupPosition(labels.get(_GROUP, ""))


RAY_CLUSTER: Final = OwnerType(
    OwnerKind.RAY_CLUSTER,
    versions_of("ray.io", "rayclusters", "RayCluster", "v1", "v1alpha1"),
    shape_reader("RayCluster", _Spec, _shape),
    _place,
)
