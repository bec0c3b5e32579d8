"""LeaderWorkerSet (leaderworkerset.x-k8s.io): a group for each replica, of a leader and workers.

Where workers are created only after their leader is ready, or is scheduled to a topology of its
own, they are a part of the group once there are any. Labels: https://lws.sigs.k8s.io,
`api/leaderworkerset/v1`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
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
    number,
    shape_reader,
    versions_of,
)

NAME: Final = "leaderworkerset.sigs.k8s.io/name"
"""The label of a pod with the name of its LeaderWorkerSet, which owns no pods itself."""
GROUP_INDEX: Final = "leaderworkerset.sigs.k8s.io/group-index"
"""The label of a pod with the index of its replica."""
SIZE: Final = "leaderworkerset.sigs.k8s.io/size"
"""The annotation of a pod with the size of its replica, which may be older than the spec."""
LEADER: Final = "leader"
WORKER: Final = "worker"
_WORKER_INDEX: Final = "leaderworkerset.sigs.k8s.io/worker-index"
_EXCLUSIVE: Final = "leaderworkerset.sigs.k8s.io/exclusive-topology"


@dataclass(frozen=True, slots=True)
class _LeaderWorkerTemplate(Struct):
    worker_template: PodTemplate = field(default_factory=PodTemplate)
    leader_template: PodTemplate | None = None
    size: int = 1


@dataclass(frozen=True, slots=True)
class _Spec(Struct):
    leader_worker_template: _LeaderWorkerTemplate
    startup_policy: str = "LeaderCreated"


def _shape(spec: _Spec, metadata: Metadata) -> GroupShape:
    template = spec.leader_worker_template
    leader, worker = template.leader_template or template.worker_template, template.worker_template
    is_late = spec.startup_policy == "LeaderReady" or _EXCLUSIVE in metadata.annotations
    return Parts(
        (
            Part(LEADER, 1, leader.names_queue),
            Part(WORKER, template.size - 1, worker.names_queue, is_late),
        )
    )


def resized(shape: GroupShape, size: int) -> GroupShape:
    """The shape of a replica of another size than the spec says now."""
    match shape:
        case Parts(parts=(leader, worker)):
            return Parts((leader, replace(worker, min_count=max(0, size - 1))))
        case _:
            return shape


def _place(labels: Mapping[str, str]) -> GroupPosition:
    index = number(labels, _WORKER_INDEX)
    return GroupPosition(WORKER if index else LEADER, index)


LEADER_WORKER_SET: Final = OwnerType(
    OwnerKind.LEADER_WORKER_SET,
    versions_of("leaderworkerset.x-k8s.io", "leaderworkersets", "LeaderWorkerSet", "v1"),
    shape_reader("LeaderWorkerSet", _Spec, _shape),
    _place,
)
