"""Resources of the Kubernetes API: what a URL says about an object's type.

Kubernetes' own word for this is APIResource; a *kind* is what bodies say, a *resource* what URLs
say: https://kubernetes.io/docs/reference/using-api/api-concepts/#standard-api-terminology
"""

from dataclasses import dataclass
from enum import Enum
from urllib.parse import quote


class Scope(Enum):
    """Whether a resource's objects live in namespaces."""

    CLUSTER = "Cluster"
    NAMESPACED = "Namespaced"


@dataclass(frozen=True, slots=True)
class ApiResource:
    """One resource in one version. The core group is empty, as in the API."""

    group: str
    version: str
    plural: str
    kind: str
    scope: Scope

    @property
    def api_version(self) -> str:
        """What bodies carry as `apiVersion`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified_name(self) -> str:
        """The name kubectl and RBAC users know: `resourceslices.resource.k8s.io`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def collection_path(self, namespace: str | None) -> str:
        """The path of all objects, of one namespace or (None) of the whole cluster.

        ValueError: a namespace is given to a cluster-scoped resource.
        """
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        if not namespace:
            return f"{root}/{self.plural}"
        if self.scope is Scope.CLUSTER:
            raise ValueError(f"{self.qualified_name} is cluster-scoped: leave out the namespace")
        return f"{root}/namespaces/{quote(namespace, safe='')}/{self.plural}"

    def object_path(self, namespace: str | None, name: str, subresource: str | None = None) -> str:
        """The path of one object, or of a subresource of it.

        ValueError: the namespace is missing or out of place, or the name is empty.
        """
        if not name:
            raise ValueError(f"{self.qualified_name}: an object has a name, and here it is empty")
        if self.scope is Scope.NAMESPACED and not namespace:
            raise ValueError(f"{self.qualified_name} {name!r}: give the namespace it lives in")
        path = f"{self.collection_path(namespace)}/{quote(name, safe='')}"
        return f"{path}/{subresource}" if subresource else path


NAMESPACES = ApiResource("", "v1", "namespaces", "Namespace", Scope.CLUSTER)
NODES = ApiResource("", "v1", "nodes", "Node", Scope.CLUSTER)
PODS = ApiResource("", "v1", "pods", "Pod", Scope.NAMESPACED)
CONFIG_MAPS = ApiResource("", "v1", "configmaps", "ConfigMap", Scope.NAMESPACED)
SERVICE_ACCOUNTS = ApiResource("", "v1", "serviceaccounts", "ServiceAccount", Scope.NAMESPACED)

RESOURCE_SLICES = ApiResource(
    "resource.k8s.io", "v1", "resourceslices", "ResourceSlice", Scope.CLUSTER
)
DEVICE_CLASSES = ApiResource("resource.k8s.io", "v1", "deviceclasses", "DeviceClass", Scope.CLUSTER)
RESOURCE_CLAIMS = ApiResource(
    "resource.k8s.io", "v1", "resourceclaims", "ResourceClaim", Scope.NAMESPACED
)
RESOURCE_CLAIM_TEMPLATES = ApiResource(
    "resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate", Scope.NAMESPACED
)
DEVICE_TAINT_RULES = ApiResource(
    "resource.k8s.io", "v1", "devicetaintrules", "DeviceTaintRule", Scope.CLUSTER
)

EVENTS = ApiResource("events.k8s.io", "v1", "events", "Event", Scope.NAMESPACED)
LEASES = ApiResource("coordination.k8s.io", "v1", "leases", "Lease", Scope.NAMESPACED)
DAEMON_SETS = ApiResource("apps", "v1", "daemonsets", "DaemonSet", Scope.NAMESPACED)
