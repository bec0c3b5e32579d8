"""All kinds of owners, and what to watch for them."""

from collections.abc import Mapping
from typing import Final

from controller.observe.owner import OwnerKind, OwnerType
from controller.observe.owners.job import JOB
from controller.observe.owners.job_set import JOB_SET
from controller.observe.owners.leader_worker_set import LEADER_WORKER_SET
from controller.observe.owners.pod_group import POD_GROUP
from controller.observe.owners.ray_cluster import RAY_CLUSTER
from controller.observe.owners.stateful_set import STATEFUL_SET
from controller.observe.owners.training_job import TRAINING_JOBS

OWNER_TYPES: Final[Mapping[OwnerKind, OwnerType]] = {
    each.kind: each
    for each in (
        JOB,
        STATEFUL_SET,
        JOB_SET,
        LEADER_WORKER_SET,
        *TRAINING_JOBS,
        RAY_CLUSTER,
        POD_GROUP,
    )
}

OWNER_RESOURCES: Final = tuple(each for each in OWNER_TYPES.values() if each.versions)
"""What to watch where it is served."""

OWNING_PODS: Final[Mapping[tuple[str, str], OwnerKind]] = {
    ("batch", "Job"): OwnerKind.JOB,
    **{
        (each.versions[0].group, each.versions[0].kind): each.kind
        for each in (STATEFUL_SET, *TRAINING_JOBS, RAY_CLUSTER)
    },
}
"""Those that owner references of pods name, by API group and kind."""
