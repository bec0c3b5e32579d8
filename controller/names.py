"""Names that the controller gives meaning to: labels, annotations, the scheduling gate."""

from typing import Final

from carina_dra.kube.api_resource import ApiResource, Scope
from controller.engine.model.queue import QUEUE_LABEL

GROUP: Final = "scheduling.carina.dev"
"""The API group of Queue and PodGroup."""
QUEUES: Final = ApiResource(GROUP, "v1alpha1", "queues", "Queue", Scope.CLUSTER)
POD_GROUPS: Final = ApiResource(GROUP, "v1alpha1", "podgroups", "PodGroup", Scope.NAMESPACED)
CONTROLLER: Final = f"{GROUP}/controller"
"""The name of the controller in the Events that it writes."""
GATE: Final = QUEUE_LABEL
"""The scheduling gate that holds a pod until its queue may have it."""
GROUP_LABEL: Final = f"{GROUP}/pod-group"
"""The label of a pod with the name of its PodGroup."""
POD_SET_LABEL: Final = f"{GROUP}/pod-set"
"""The label of a pod with the name of its pod set, in a PodGroup that has several."""
NODE_ANNOTATION: Final = f"{GROUP}/node"
"""The annotation of a pod with the node that it was given; written as its gate is removed."""
FENCE_ANNOTATION: Final = f"{GROUP}/fence"
"""The annotation of an object with the time of the last write to it whose outcome was not known."""
MIN_COUNT_ANNOTATION: Final = f"{GROUP}/min-count"
"""The annotation of a pod: how many pods of its owner start together."""
PREEMPTIBLE_ANNOTATION: Final = f"{GROUP}/preemptible"
"""The annotation of a pod without a PodGroup: `false` if its group must not be evicted."""
STARTED_WITH_ANNOTATION: Final = f"{GROUP}/started-with"
"""The annotation of a pod: how many pods its group needed when it started, written as its gate is
removed."""
RUN_TIME_ANNOTATION: Final = f"{GROUP}/run-time"
"""The annotation of a pod without a PodGroup: how long its group runs, such as `90m`."""
ON_DEVICE_FAILURE_ANNOTATION: Final = f"{GROUP}/on-device-failure"
"""The annotation of a pod without a PodGroup: `replace` if its group is to be planned again when a
device of it fails, or `wait`."""
EXPIRES_ANNOTATION: Final = f"{GROUP}/expires-after"
"""The annotation of a standalone claim: for how long it holds its devices, such as `8h`."""
RESERVATIONS: Final = "reservations"
"""The resource of the `reservedFor` entry that holds a standalone claim; no such object exists."""
QUEUE_FINALIZER: Final = f"{GROUP}/in-use"
"""The finalizer of a Queue to which groups are charged."""
TAINT: Final = f"{GROUP}/exclusive"
"""The key of the device taint that keeps the allocations of others off, in exclusive mode."""
DELETE_PROTECTION: Final = "resource.kubernetes.io/delete-protection"
"""The finalizer of allocated claims (KEP-4381)."""
