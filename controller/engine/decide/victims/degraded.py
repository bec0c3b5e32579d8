"""Groups with a device that its driver has tainted: which are, and which are planned again for it.

Only the taints that a driver publishes say that a device has failed. Those of DeviceTaintRules are
the plans of an administrator, such as to empty a node.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import partial

from carina_dra.allocator.taint import taint_text, tolerates
from carina_dra.allocator.usage import DeviceId
from carina_dra.resource import Allocation, DeviceResult, DeviceTaint
from controller.engine.decide.gangs.isolation import Isolation, earlier
from controller.engine.decide.gangs.trial import Trial
from controller.engine.decide.victims.whole_group import evict_whole
from controller.engine.model.failed_device import FailedDevice, TaintTolerance
from controller.engine.model.group import Group, OnDeviceFailure
from controller.engine.model.plan import Action
from controller.engine.model.pod import Evicting, Placed, Pod
from controller.engine.state.state import State

Degraded = Mapping[str, tuple[FailedDevice, ...]]
"""By group: the devices of its running pods that have failed."""


def degraded_groups(state: State, isolation: Isolation) -> Degraded:
    """The groups that run with a device that has failed."""
    pods_of: dict[str, dict[str, Pod]] = {}
    for claim in state.tainted.tainted_claims():
        for key in state.occupancy.referring.get(claim, ()):
            pod = state.occupancy.pods[key]
            if pod.group in state.occupancy.groups and isinstance(pod.state, Placed | Evicting):
                pods_of.setdefault(pod.group or "", {})[key] = pod
    degraded: dict[str, tuple[FailedDevice, ...]] = {}
    for key in sorted(pods_of):
        look = partial(_failed_devices, state, pods_of[key].values())
        failed = isolation.run(state.occupancy.groups[key], look)
        if failed:
            degraded[key] = failed
    return degraded


def replace_degraded(trial: Trial, isolation: Isolation, degraded: Degraded) -> float | None:
    """Evicts groups that ask to be planned again; when time lets another one go.

    Those are degraded groups, and those of which a pod was evicted for its device before they were
    looked at. A group is replaced at most once in `replace_interval`, counted from when a pod of it
    was evicted last, whatever for: a device that fails again and again must not keep it from
    running. One that started with the taint would come to the same device, and stays. So does one
    of a queue in which it could not start.
    """
    state, wake = trial.state, None
    for key in sorted(degraded.keys() | state.bereft.keys()):
        group = state.occupancy.groups[key]
        if group.on_device_failure is not OnDeviceFailure.REPLACE:
            continue
        if not state.occupancy.tree.takes_work(group.queue):
            continue
        interval = state.settings.replace_interval
        due = state.now if group.evicted is None else group.evicted + interval
        if not _is_bereft(group, due):
            tolerances = {device.tolerance for device in degraded.get(key, ())}
            if tolerances <= {TaintTolerance.STARTED_WITH}:
                continue
            if due > state.now:
                wake = earlier(wake, due)
                continue
        isolation.run(group, partial(evict_whole, trial, group, Action.REPLACE))
    return wake


def _is_bereft(group: Group, due: float) -> bool:
    """Whether it has lost a pod to a device at a time at which it may be replaced.

    If not, the pod that takes the place of that one completes it.
    """
    if group.device_eviction is None:
        return False
    return group.evicted is None or group.device_eviction >= due


def _failed_devices(state: State, pods: Iterable[Pod]) -> tuple[FailedDevice, ...]:
    return tuple(
        failed
        for pod in sorted(pods, key=lambda pod: (pod.rank, pod.key))
        for claim in pod.claims
        if claim in state.occupancy.claims
        for failed in _of_claim(state, pod, state.occupancy.claims[claim].status.allocation)
    )


def _of_claim(state: State, pod: Pod, allocation: Allocation | None) -> Iterator[FailedDevice]:
    if allocation is None or not isinstance(pod.state, Placed | Evicting):
        return
    for result in allocation.devices.results:
        if result.admin_access:
            continue
        for taint in state.tainted.of_driver(result):
            device = DeviceId(result.driver, result.pool, result.device)
            tolerance = _tolerance(taint, result, allocation)
            text = taint_text(taint)
            yield FailedDevice(pod.key, pod.state.node, str(device), text, tolerance)


def _tolerance(taint: DeviceTaint, result: DeviceResult, allocation: Allocation) -> TaintTolerance:
    if not any(tolerates(toleration, taint) for toleration in result.tolerations):
        return TaintTolerance.NONE
    added, allocated = taint.time_added, allocation.allocation_timestamp
    if added is None or allocated is None or added > allocated:
        return TaintTolerance.TOLERATES
    return TaintTolerance.STARTED_WITH
