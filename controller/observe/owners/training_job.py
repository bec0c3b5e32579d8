"""The jobs of Kubeflow's training operator (kubeflow.org/v1), and the MPIJob of its MPI operator.

A pod set for each type of replica, with all replicas; of an elastic PyTorchJob, with the smallest
number of workers. With `schedulingPolicy.minAvailable` it is one pod set, since that counts all
types. Labels: `pkg/apis/kubeflow.org/v1/common_types.go` of the training operator.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from carina_dra.resource.schema import Struct, json_name
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

NAME: Final = "training.kubeflow.org/job-name"
OPERATOR: Final = "training.kubeflow.org/operator-name"
MPI_OPERATOR: Final = "mpi-operator"
"""It makes the launcher with a Job of its own."""
_ROLE: Final = "training.kubeflow.org/job-role"
_TYPE: Final = "training.kubeflow.org/replica-type"
_INDEX: Final = "training.kubeflow.org/replica-index"


@dataclass(frozen=True, slots=True)
class _ReplicaSpec(Struct):
    replicas: int = 1
    template: PodTemplate = field(default_factory=PodTemplate)


@dataclass(frozen=True, slots=True)
class _SchedulingPolicy(Struct):
    min_available: int | None = None


@dataclass(frozen=True, slots=True)
class _RunPolicy(Struct):
    scheduling_policy: _SchedulingPolicy = field(default_factory=_SchedulingPolicy)


@dataclass(frozen=True, slots=True)
class _ElasticPolicy(Struct):
    min_replicas: int | None = None


@dataclass(frozen=True, slots=True)
class _Spec(Struct):
    run_policy: _RunPolicy = field(default_factory=_RunPolicy)
    elastic_policy: _ElasticPolicy = field(default_factory=_ElasticPolicy)
    launcher_creation_policy: str = "AtStartup"
    pytorch: Mapping[str, _ReplicaSpec] = field(
        default_factory=dict, metadata=json_name("pytorchReplicaSpecs")
    )
    tf: Mapping[str, _ReplicaSpec] = field(
        default_factory=dict, metadata=json_name("tfReplicaSpecs")
    )
    xgboost: Mapping[str, _ReplicaSpec] = field(
        default_factory=dict, metadata=json_name("xgbReplicaSpecs")
    )
    paddle: Mapping[str, _ReplicaSpec] = field(
        default_factory=dict, metadata=json_name("paddleReplicaSpecs")
    )
    jax: Mapping[str, _ReplicaSpec] = field(
        default_factory=dict, metadata=json_name("jaxReplicaSpecs")
    )
    mpi: Mapping[str, _ReplicaSpec] = field(
        default_factory=dict, metadata=json_name("mpiReplicaSpecs")
    )

    @property
    def replica_specs(self) -> Mapping[str, _ReplicaSpec]:
        """By type, such as `Master`; a job has those of its kind."""
        return {
            **self.pytorch, **self.tf, **self.xgboost, **self.paddle, **self.jax, **self.mpi
        }  # fmt: skip


def _shape(spec: _Spec, _: Metadata) -> GroupShape:
    least = spec.run_policy.scheduling_policy.min_available
    if least is not None:
        return Parts((Part("", least),))
    elastic = spec.elastic_policy.min_replicas
    waits = spec.launcher_creation_policy == "WaitForWorkersReady"
    return Parts(
        tuple(
            Part(
                kind.lower(),
                elastic if elastic is not None and kind == "Worker" else replica_spec.replicas,
                replica_spec.template.names_queue,
                is_late=waits and kind == "Launcher",
            )
            for kind, replica_spec in spec.replica_specs.items()
        )
    )


def _place(labels: Mapping[str, str]) -> GroupPosition:
    """The MPI operator writes no type: the role is the type there."""
    kind = labels.get(_TYPE) or labels.get(_ROLE, "")
    return GroupPosition(kind.lower(), number(labels, _INDEX))


def _training_job(kind: OwnerKind, name: str, *versions: str) -> OwnerType:
    return OwnerType(
        kind,
        versions_of("kubeflow.org", f"{kind}s", name, *versions),
        shape_reader(name, _Spec, _shape),
        _place,
    )


TRAINING_JOBS: Final = (
    _training_job(OwnerKind.PYTORCH_JOB, "PyTorchJob", "v1"),
    _training_job(OwnerKind.TF_JOB, "TFJob", "v1"),
    _training_job(OwnerKind.XGBOOST_JOB, "XGBoostJob", "v1"),
    _training_job(OwnerKind.PADDLE_JOB, "PaddleJob", "v1"),
    _training_job(OwnerKind.JAX_JOB, "JAXJob", "v1"),
    _training_job(OwnerKind.MPI_JOB, "MPIJob", "v2beta1", "v1"),
)
