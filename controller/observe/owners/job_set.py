"""JobSet (jobset.x-k8s.io): a pod set for each replicated job, with all pods of its jobs.

A job that waits for others is a part of the group once it has pods. A TrainJob of Kubeflow is
carried out by a JobSet. Labels: https://jobset.sigs.k8s.io, `api/jobset/v1alpha2`.
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
    number,
    shape_reader,
    versions_of,
)
from controller.observe.owners.job import COMPLETION_INDEX

NAME: Final = "jobset.sigs.k8s.io/jobset-name"
"""The label of a pod with the name of its JobSet, which owns the Job that owns the pod."""
_REPLICATED_JOB: Final = "jobset.sigs.k8s.io/replicatedjob-name"
_JOB_INDEX: Final = "jobset.sigs.k8s.io/job-index"
_EXCLUSIVE: Final = "alpha.jobset.sigs.k8s.io/exclusive-topology"
_SELECTS_NODES: Final = "alpha.jobset.sigs.k8s.io/node-selector"
_PODS: Final = 100_000
"""The most pods that an Indexed Job has at a time."""


@dataclass(frozen=True, slots=True)
class _JobSpec(Struct):
    parallelism: int = 1
    completions: int | None = None
    template: PodTemplate = field(default_factory=PodTemplate)


@dataclass(frozen=True, slots=True)
class _JobTemplate(Struct):
    metadata: Metadata = field(default_factory=Metadata)
    spec: _JobSpec = field(default_factory=_JobSpec)


@dataclass(frozen=True, slots=True)
class _DependsOn(Struct):
    name: str


@dataclass(frozen=True, slots=True)
class _ReplicatedJob(Struct):
    name: str
    replicas: int = 1
    template: _JobTemplate = field(default_factory=_JobTemplate)
    depends_on: tuple[_DependsOn, ...] = ()


@dataclass(frozen=True, slots=True)
class _StartupPolicy(Struct):
    startup_policy_order: str = "AnyOrder"


@dataclass(frozen=True, slots=True)
class _Spec(Struct):
    replicated_jobs: tuple[_ReplicatedJob, ...] = ()
    startup_policy: _StartupPolicy = field(default_factory=_StartupPolicy)


def _shape(spec: _Spec, metadata: Metadata) -> GroupShape:
    in_order = spec.startup_policy.startup_policy_order == "InOrder"
    return Parts(
        tuple(
            Part(
                job.name,
                job.replicas * _pods(job, metadata),
                job.template.spec.template.names_queue,
                is_late=bool(job.depends_on) or (in_order and index > 0),
            )
            for index, job in enumerate(spec.replicated_jobs)
        )
    )


def _pods(job: _ReplicatedJob, metadata: Metadata) -> int:
    """How many pods a replica of the job creates at once."""
    spec, annotations = (
        job.template.spec,
        {*metadata.annotations, *job.template.metadata.annotations},
    )
    pods = spec.parallelism if spec.completions is None else min(spec.parallelism, spec.completions)
    # With a topology to itself, a job gets its other pods when the first one has been scheduled.
    return min(pods, 1) if _EXCLUSIVE in annotations and _SELECTS_NODES not in annotations else pods


def _place(labels: Mapping[str, str]) -> GroupPosition:
    rank = number(labels, _JOB_INDEX) * _PODS + number(labels, COMPLETION_INDEX)
    return GroupPosition(labels.get(_REPLICATED_JOB, ""), rank)


JOB_SET: Final = OwnerType(
    OwnerKind.JOB_SET,
    versions_of("jobset.x-k8s.io", "jobsets", "JobSet", "v1alpha2"),
    shape_reader("JobSet", _Spec, _shape),
    _place,
)
