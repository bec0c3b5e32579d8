"""A snapshot without what the engine does not need and others should not see.

Left out are annotations, opaque parameters of devices (which may refer to Secrets), what drivers
report of devices, and the members that newer APIs add. The engine decides alike on what remains.
A snapshot has nothing else of pods than what they need of a node, so no environment of theirs.
"""

from dataclasses import replace
from typing import Any

from carina_dra.resource import Allocation, ObjectMeta, ResourceClaim
from controller.engine.model.snapshot import Snapshot


def redacted(snapshot: Snapshot) -> Snapshot:
    """The snapshot without what others should not see."""
    memory = snapshot.memory
    nominations = tuple(
        replace(
            nomination,
            allocations=tuple(
                (claim, _allocation(allocation)) for claim, allocation in nomination.allocations
            ),
        )
        for nomination in memory.nominations
    )
    kept_places = tuple(
        replace(
            kept,
            allocations=tuple(
                (index, _allocation(allocation)) for index, allocation in kept.allocations
            ),
        )
        for kept in memory.kept_places
    )
    return replace(
        snapshot,
        slices=tuple(map(_with_plain_metadata, snapshot.slices)),
        rules=tuple(map(_with_plain_metadata, snapshot.rules)),
        classes=tuple(
            replace(_with_plain_metadata(device_class), spec=replace(device_class.spec, config=()))
            for device_class in snapshot.classes
        ),
        claims=tuple(map(_claim, snapshot.claims)),
        memory=replace(memory, nominations=nominations, kept_places=kept_places),
    )


def _claim(claim: ResourceClaim) -> ResourceClaim:
    allocation = claim.status.allocation
    status = replace(
        claim.status,
        allocation=None if allocation is None else _allocation(allocation),
        devices=(),
    )
    devices = replace(claim.spec.devices, config=())
    return replace(
        claim,
        metadata=_metadata(claim.metadata),
        spec=replace(claim.spec, devices=devices),
        status=status,
    )


def _allocation(allocation: Allocation) -> Allocation:
    return replace(allocation, devices=replace(allocation.devices, config=()))


def _with_plain_metadata(body: Any) -> Any:
    return replace(body, metadata=_metadata(body.metadata))


def _metadata(metadata: ObjectMeta) -> ObjectMeta:
    return ObjectMeta(
        name=metadata.name,
        namespace=metadata.namespace,
        uid=metadata.uid,
        creation_timestamp=metadata.creation_timestamp,
        deletion_timestamp=metadata.deletion_timestamp,
        labels=metadata.labels,
    )
