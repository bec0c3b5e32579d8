"""The controller's settings."""

from collections.abc import Mapping
from typing import Annotated, Final, Self

from pydantic import Field, StringConstraints, model_validator
from pydantic.functional_validators import BeforeValidator

from carina_dra.allocator.preference import Order, Policy
from carina_dra.kube.body import ObjectKey
from carina_dra.kube.lease import LeaseTiming
from carina_dra.process import settings as process_settings
from carina_dra.process.metavar import Metavar
from carina_dra.process.settings import DNS_LABELS, FILE_ONLY, ClusterSettings
from controller.engine.model.plan import Action
from controller.engine.model.snapshot import EngineSettings

_CHOICES: Final = tuple(
    action for action in Action if action not in (Action.DRAIN, Action.RELEASE, Action.REPLACE)
)
"""What is tried for groups that have no room, and for stale ones. Queues ask to drain, nodes
to be released, and groups to be replaced."""


def _policy(value: object) -> object:
    return Policy.parse(value) if isinstance(value, str) else value


def _actions(value: object) -> object:
    if isinstance(value, str):
        value = [name.strip() for name in value.split(",")] if value else []
    for name in value if isinstance(value, list) else ():
        if name not in _CHOICES:
            *most, last = (f"'{choice}'" for choice in _CHOICES)
            raise ValueError(f"{name!r:.80} is no action; write {', '.join(most)} or {last}")
    return value


ObjectName = Annotated[str, StringConstraints(pattern=DNS_LABELS, max_length=253)]
_ORDER = f"({'|'.join(Order)})"
_PolicyText = Annotated[str, Field(pattern=rf"^(upstream|{_ORDER}(/{_ORDER})?)\Z")]
PlacementPolicy = Annotated[Policy, BeforeValidator(_policy, json_schema_input_type=_PolicyText)]
_CHOICE = f"({'|'.join(_CHOICES)})"
_ActionsText = Annotated[str, Field(pattern=rf"^( *{_CHOICE}( *, *{_CHOICE})* *)?\Z")]
Actions = Annotated[
    tuple[Action, ...],
    BeforeValidator(_actions, json_schema_input_type=_ActionsText | list[Action]),
    Metavar("ACTION,..."),
]
LabelKey = Annotated[str, StringConstraints(min_length=1, max_length=317)]
Levels = Annotated[tuple[LabelKey, ...], Field(min_length=1)]


class Settings(ClusterSettings):
    """The settings of the controller."""

    DESCRIPTION = (
        "Carina's controller. It decides which pods of the cluster's queues start, when, and on "
        "which devices."
    )

    identity: str = Field(
        min_length=1,
        description="name of this process in the Lease, such as that of its pod; no two processes "
        "may have the same",
    )
    lease_namespace: ObjectName = Field(
        "carina-system", description="namespace of the Lease that the leader holds"
    )
    lease_name: ObjectName = Field("carina-controller", description="name of that Lease")
    lease_seconds: int = Field(
        9,
        ge=1,
        le=3600,
        description="seconds after which the Lease of a leader that is gone expires; another "
        "process leads after at most four retries more",
    )
    renew_seconds: float = Field(
        6.0,
        gt=0,
        description="seconds after which a leader stops that cannot renew the Lease",
    )
    retry_seconds: float = Field(
        1.0, gt=0, description="seconds between two attempts to take or renew the Lease"
    )
    exclusive: bool = Field(
        default=False,
        description="whether a device taint keeps kube-scheduler from allocating "
        "the driver's devices to pods without a queue",
    )
    dry_run: bool = Field(
        default=False,
        description="whether the controller only decides and reports, and writes nothing",
    )
    actions: Actions = Field(
        "consolidate,reclaim,preempt,stale",
        validate_default=True,
        description="what may evict pods, separated by commas, in the order in which it is tried: "
        "consolidate (they move, so that a group fits), reclaim (their queue has more than its "
        "fair share), preempt (a group of their queue has a higher priority), stale (their group "
        "has fewer pods than it needs); empty for nothing",
    )
    placement: PlacementPolicy = Field(
        "balanced",
        validate_default=True,
        description="which nodes and devices come first, where neither the group nor the queue "
        "says: balanced, binpack, spread, fragmentation, upstream, or NODES/DEVICES",
    )
    topologies: Annotated[Mapping[ObjectName, Levels], FILE_ONLY] = Field(
        {}, description="topologies by name: the keys of node labels, the widest level first"
    )
    staleness_grace_seconds: float = Field(
        60.0,
        ge=0,
        description="seconds for which a group may have fewer pods than it needs before these are "
        "evicted for others, unless it says otherwise; 660 at least for groups with pods of Jobs",
    )
    preempt_min_runtime_seconds: float = Field(
        0.0,
        ge=0,
        description="seconds for which a group is safe from others of its queue, unless the queue "
        "says otherwise",
    )
    reclaim_min_runtime_seconds: float = Field(
        0.0,
        ge=0,
        description="seconds for which a group is safe from other queues, unless its queue says "
        "otherwise",
    )
    consolidation_limit: int = Field(
        16, ge=0, description="how many pods move at most, so that one group fits"
    )
    move_seconds: float = Field(
        60.0,
        ge=0,
        description="seconds for which the place of a pod that moves is kept for the pod that "
        "replaces it",
    )
    move_interval_seconds: float = Field(
        3_600.0,
        ge=0,
        description="seconds for which a group does not move after a pod of it was evicted, so "
        "that nobody can have it moved again and again",
    )
    search_steps: int = Field(
        2_000,
        ge=1,
        description="how many placements a cycle tries at most, to find out whom to evict; a "
        "search that is cut short goes on in the next cycle",
    )
    attempt_steps: int = Field(
        50_000,
        ge=1_000,
        description="what one attempt to place a pod or a gang may cost, in steps of about 10 "
        "microseconds; one that costs more is undecided, and tried again later",
    )
    attempt_steps_per_node: int = Field(
        200,
        ge=0,
        description="what it may cost in addition, for each node of the cluster; the first attempt "
        "of a group may cost a quarter of both, and each one after an undecided one twice as much",
    )
    attempt_steps_per_pod: int = Field(
        120,
        ge=0,
        description="what it may cost in addition, for each pod of the group that waits; a pod of "
        "a gang takes 40 steps, or 100 if others are evicted for it",
    )
    decide_seconds: float = Field(
        1.0,
        gt=0,
        description="seconds after which a cycle asks no further group, and what it has decided is "
        "written; the next cycle goes on at once",
    )
    writers: int = Field(16, ge=1, le=256, description="writes to the API server at the same time")
    avoid_seconds: float = Field(
        300.0,
        gt=0,
        description="seconds for which a node is avoided for a pod that kube-scheduler refused "
        "there",
    )
    verdict_seconds: float = Field(
        5.0,
        ge=0,
        description="seconds that kube-scheduler's refusal must last before it counts",
    )

    evict_unqueued: bool = Field(
        default=False,
        description="whether pods without a queue are evicted, too, that got devices as extended "
        "resources, when a device has a taint with the effect NoExecute: Kubernetes evicts only "
        "pods that name claims",
    )
    device_eviction_grace_seconds: float = Field(
        60.0,
        ge=0,
        description="seconds for which a disruption budget may refuse the eviction of a pod for a "
        "taint of its device with the effect NoExecute; then the pod is deleted",
    )

    replace_interval_seconds: float = Field(
        600.0,
        ge=0,
        description="seconds after an eviction for which a group with `onDeviceFailure: replace` "
        "is not replaced when a device of it fails",
    )

    @model_validator(mode="after")
    def _lease_can_be_renewed(self) -> Self:
        if not self.retry_seconds < self.renew_seconds < self.lease_seconds:
            raise ValueError(
                f"retry_seconds {self.retry_seconds:g}, renew_seconds {self.renew_seconds:g} and "
                f"lease_seconds {self.lease_seconds} must ascend: the leader needs time for a "
                "retry, and then time to stop before another process leads"
            )
        return self

    @property
    def lease(self) -> ObjectKey:
        """The Lease that the leader holds."""
        return ObjectKey(self.lease_namespace, self.lease_name)

    @property
    def lease_timing(self) -> LeaseTiming:
        """When the Lease is renewed and when it expires.

        Another candidate sees a renewal after at most two retries, and the expiry after two more.
        """
        return LeaseTiming(self.lease_seconds, self.renew_seconds, self.retry_seconds)

    @property
    def engine_settings(self) -> EngineSettings:
        """How the engine decides."""
        return EngineSettings(
            actions=self.actions,
            placement=self.placement,
            consolidation_limit=self.consolidation_limit,
            staleness_grace=self.staleness_grace_seconds,
            move_seconds=self.move_seconds,
            move_interval=self.move_interval_seconds,
            replace_interval=self.replace_interval_seconds,
            preempt_min_runtime=self.preempt_min_runtime_seconds,
            reclaim_min_runtime=self.reclaim_min_runtime_seconds,
            search_steps=self.search_steps,
            attempt_steps=self.attempt_steps,
            attempt_steps_per_node=self.attempt_steps_per_node,
            attempt_steps_per_pod=self.attempt_steps_per_pod,
            driver=self.driver_name,
        )


def read(source: str, text: str) -> Settings:
    """Returns the settings in the text of a settings file, as those of any process.

    Raises:
        SettingsError: a setting is unknown or invalid; the message names `source`.
    """
    return process_settings.read(Settings, source, text, identity="any")
