"""The port for memory limits: what the driver lets the pods of claims allocate on a shared GPU.

The limit is set on the cgroup of the pod, which no container of it can change. A pod with several
claims on a GPU has their sum. A limit is set before the claim's CDI spec is written, so before a
container of the pod can start, and is read back.

It is recorded before it is set, with the pods. A repair knows the pods from that record, and from
what the API server has said since of a claim that another pod has come to use. A claim without a
record, which an earlier version of Carina prepared, stays without a limit.
"""

import logging
from collections.abc import Callable, Collection
from pathlib import Path

from carina_dra.nvidia.nvml_library import NO_SUCH, NvmlLibrary
from kubelet_plugin.claims.drift import LimitedPodGone, LimitedPodsChanged, MemoryLimitDrift
from kubelet_plugin.claims.resource_failure import (
    MemoryLimitIgnored,
    NvmlCallFailed,
    PodCgroupMissing,
    PodUnknown,
    SeveralPods,
)
from kubelet_plugin.nvml.memory_limits import read_limit, set_limit
from kubelet_plugin.nvml.mig_instance import handle_of
from kubelet_plugin.prepare.drift_notes import DriftNotes
from kubelet_plugin.prepare.limit_records import LimitRecord, LimitRecords
from kubelet_plugin.prepare.mig_call import mig_calls
from kubelet_plugin.prepare.pod_cgroup import pod_cgroup
from kubelet_plugin.prepare.resource import (
    Identity,
    LeftBehindError,
    MadeLimit,
    MemoryLimit,
    ResourceError,
    limit_identity,
)

_MIB = 2**20

_log = logging.getLogger(__name__)


class MemoryLimits:
    """The memory limits of this driver's claims on the node."""

    def __init__(
        self,
        library: NvmlLibrary,
        records: LimitRecords,
        cgroup_root: Path,
        *,
        seen_pods: Callable[[str], Collection[str]] = lambda _: (),
        notes: DriftNotes | None = None,
    ) -> None:
        """`cgroup_root` is the host's cgroup file system; `notes` learns of what is set.

        `seen_pods` returns the UIDs of the pods of a claim, by its UID, as the API server has said
        since it was prepared; empty if it is not known.
        """
        self._library = library
        self._records = records
        self._cgroup_root = cgroup_root
        self._seen_pods = seen_pods
        self._notes = notes or DriftNotes()
        self._unlimited: set[Identity] = set()

    def observe(self) -> Collection[Identity]:
        """Returns the identities of the limits that are recorded.

        Raises:
            ResourceError: the record cannot be read.
        """
        split = (name.rpartition(".") for name in self._records.names())
        return {limit_identity(uid, gpu) for uid, _, gpu in split}

    def make(self, wanted: MemoryLimit) -> MadeLimit | None:
        """Sets the limits of the claim's pods, unless they are as they have to be.

        Returns None if the claim is not enforced: the driver has no limits, or not exactly one pod
        is known and there. If several are, each is kept within the limit by itself.

        Raises:
            ResourceError: a limit cannot be set or recorded, or does not hold; the cgroup of the
                pod that is to start, or of one that a limit is demanded of, is not there; or a
                limit is demanded of a pod that is not known, or of a claim of several pods.
        """
        gpu, name = wanted.gpu, wanted.identity.name
        before = self._records.read(name)
        pods = wanted.pods
        if pods is None:
            pods = self._present_pods(wanted.claim, () if before is None else before.pods)
        if before is None and not (pods and gpu.memory_limits):
            if wanted.demanded:
                raise ResourceError(PodUnknown(gpu.uuid))
            self._report_unlimited(wanted)
            return None
        record = LimitRecord(gpu.uuid, gpu.pci_bus_id, pods, wanted.mib)
        if before is not None and before.gpu == gpu.uuid:
            former = [pod for pod in before.pods if pod not in pods]
            self._agree(before, wanted.identity, former, without=name)
        if record != before:
            self._records.store(name, record)
        # A demand without a pod of the call is that of a repair, or of an API server that is away:
        # then another pod than the recorded one may be about to start.
        needed = len(pods) == 1 and (wanted.pods is not None or wanted.demanded)
        try:
            held = self._agree(record, wanted.identity, pods, missing_fails=needed)
        except ResourceError as error:
            if gpu.memory_limits or not _is_without_limits(error):
                raise
            return None  # the driver was replaced by one without limits
        if wanted.demanded and len(pods) > 1:
            raise ResourceError(SeveralPods(gpu.uuid, pods))
        return self._found(pods, before, held=held)

    def _found(
        self, pods: tuple[str, ...], before: LimitRecord | None, *, held: bool
    ) -> MadeLimit | None:
        """Returns whether the claim is limited: of several pods, each is by itself."""
        if before is not None and before.pods != pods:
            self._notes.note(LimitedPodsChanged(pods))
        if len(pods) != 1:
            return None
        if not held:
            self._notes.note(LimitedPodGone(pods[0]))
        return MadeLimit() if held else None

    def _present_pods(self, claim: str, recorded: tuple[str, ...]) -> tuple[str, ...]:
        """Returns the pods of a claim whose call has not said them.

        What was seen is only needed where several pods use the claim, or did; else, the record is
        that of the last call, and newer.
        """
        seen = tuple(sorted(self._seen_pods(claim)))
        return seen if seen and (len(seen) > 1 or len(recorded) > 1) else recorded

    def remove(self, identity: Identity) -> None:
        """Takes the claim's part from the limits of its pods, as far as they are still there.

        Raises:
            LeftBehindError: a limit cannot be set now.
            ResourceError: the record cannot be read or changed.
        """
        record = self._records.read(identity.name)
        if record is not None:
            try:
                self._agree(record, identity, record.pods, without=identity.name)
            except ResourceError as error:
                raise LeftBehindError(error.failure) from error
        self._records.remove(identity.name)

    def _agree(
        self,
        record: LimitRecord,
        identity: Identity,
        pods: Collection[str],
        *,
        without: str = "",
        missing_fails: bool = False,
    ) -> bool:
        """Sets the limits of pods to what is recorded, and reads them back.

        Returns whether the cgroups of all pods are there.
        """
        found = 0
        for pod in pods:
            cgroup = self._cgroup(pod)
            if cgroup is not None:
                mib = self._records.total_mib(pod, identity.gpu, without=without)
                self._set(record, pod, cgroup, mib * _MIB or None, identity.gpu)
                found += 1
            elif missing_fails:
                raise ResourceError(PodCgroupMissing(pod, str(self._cgroup_root)))
        return found == len(pods)

    def _set(
        self, record: LimitRecord, pod: str, cgroup: Path, limit: int | None, gpu: str
    ) -> None:
        task = f"the memory of pod {pod} on {record.gpu} cannot be limited"
        with mig_calls(self._library, task):
            handle = handle_of(record.gpu, record.pci_bus_id)
            found = read_limit(handle, cgroup)
            if found == limit:
                return
            if found and limit and found > limit and self._records.has_damaged(gpu):
                return  # it may be the pod's by the record that is damaged
            self._notes.note(MemoryLimitDrift(pod, record.gpu, found, limit))
            set_limit(handle, cgroup, limit)
            found = read_limit(handle, cgroup)
        if found != limit:
            raise ResourceError(MemoryLimitIgnored(task, str(cgroup), limit, found))

    def _cgroup(self, pod: str) -> Path | None:
        try:
            return pod_cgroup(self._cgroup_root, pod)
        except OSError as error:
            raise ResourceError(PodCgroupMissing(pod, str(self._cgroup_root))) from error

    def _report_unlimited(self, wanted: MemoryLimit) -> None:
        """Logs once that a claim has no limit, although the driver has limits."""
        if wanted.gpu.memory_limits and wanted.identity not in self._unlimited:
            self._unlimited.add(wanted.identity)
            _log.warning(
                "the memory of a share is not limited, because it is not known which pod uses its "
                "claim; delete the pod and create it again to have it limited",
                extra={"limit": wanted.identity.name},
            )


def _is_without_limits(error: ResourceError) -> bool:
    failure = error.failure
    return isinstance(failure, NvmlCallFailed) and failure.failure.code in NO_SUCH
