"""Whether a claim could get exactly these devices of a node, without a search."""

from collections.abc import Sequence

from carina_dra.allocator.capacity import fits
from carina_dra.allocator.ledger import Ledger
from carina_dra.allocator.node_state import NodeState
from carina_dra.allocator.pool import Candidate
from carina_dra.allocator.usage import DeviceId, PoolId
from carina_dra.resource import DeviceResult


def is_feasible(results: Sequence[DeviceResult], state: NodeState) -> bool:
    """Whether a claim that has nothing could get these devices of the node together.

    The rules are those of the search, for results of devices that are published as they were when
    they were allocated. Not considered are taints, and whether the claim's requests select the
    devices.
    """
    pools = {pool.id: pool for pool in state.ready}
    ledger = Ledger(state.ready, state.usage, state.features)
    for result in results:
        device = DeviceId(result.driver, result.pool, result.device)
        pool = pools.get(PoolId(result.driver, result.pool))
        index = None if pool is None else pool.positions.get(device)
        if pool is None or index is None:
            return False
        if not _take(result, pool.devices[index], state, ledger):
            return False
    return True


def _take(result: DeviceResult, candidate: Candidate, state: NodeState, ledger: Ledger) -> bool:
    """Takes the device or the share, if nothing is in the way."""
    device, capacity, amounts = candidate.id, candidate.device.capacity, result.consumed_capacity
    admin, is_shareable = bool(result.admin_access), state.is_shareable(candidate)
    if candidate.device.binding_conditions and not state.features.binding_conditions:
        return False
    if not candidate.here or not state.supports(candidate):
        return False
    if is_shareable != (result.share_id is not None) or not amounts.keys() <= capacity.keys():
        return False  # its driver has begun or stopped to share it
    if not ledger.is_free(device, claim=0, admin=admin):
        return False
    if admin:
        if not is_shareable:
            ledger.hold(device, claim=0, admin=True)
        return fits(amounts, capacity)
    has_paid = ledger.is_shared(device)
    if has_paid and not is_shareable:
        return False
    # The first share has taken the counters for all.
    if not ledger.has_room(candidate, amounts) or not (has_paid or ledger.draw(candidate)):
        return False
    if is_shareable:
        ledger.share(device, amounts)
    else:
        ledger.hold(device, claim=0, admin=False)
    return True
