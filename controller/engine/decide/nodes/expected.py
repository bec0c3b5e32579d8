"""What kube-scheduler is expected to choose for a pod that it was sent without a plan being known.

A leader that starts does not know what an earlier one has planned. It knows the pod's node.
"""

from typing import Final

from carina_dra.allocator.errors import AllocationError
from carina_dra.allocator.preference import Policy
from carina_dra.placement.choice.placer import PlacedClaims, PlacementRequest, Placer
from carina_dra.price import attempt_limit
from carina_dra.resource import Allocation
from carina_dra.step_budget import OutOfStepsError, StepBudget
from controller.engine.model.pod import Placed, Pod
from controller.engine.state.occupancy import Occupancy

_MAX_STEPS: Final = 10_000


def expected_devices(occupancy: Occupancy, pod: Pod) -> dict[str, Allocation]:
    """What the planned claims of a pod with a place get there: the first devices that are free.

    Nothing if its node serves it by a device plugin, or has no such devices.
    """
    if not isinstance(pod.state, Placed):
        return {}
    node, needed = pod.state.node, set(occupancy.claims_on(pod, pod.state.node))
    keys = [key for _, key in pod.planned if key in needed and occupancy.allocation(key) is None]
    claims = [occupancy.claims[key] for key in keys if key in occupancy.claims]
    if not claims:
        return {}
    placer = Placer(
        occupancy.cluster,
        Policy(devices=None),
        new_share_id=lambda: f"planned for {pod.key}",
        max_steps=_MAX_STEPS,
    )
    try:
        request = PlacementRequest.of(claims, occupancy.devices.classes, occupancy.cluster.features)
        found = placer.place(request, [node], budget=StepBudget(attempt_limit(1)))
    except (AllocationError, OutOfStepsError):
        return {}
    if not isinstance(found, PlacedClaims):
        return {}
    return dict(zip(keys, found.allocated.allocations, strict=True))
