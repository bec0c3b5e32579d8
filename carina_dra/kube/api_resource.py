"""Resources of the Kubernetes API: the type of an object as URLs name it.

Kubernetes calls this an APIResource. Bodies name the *kind*, URLs the *resource*:
https://kubernetes.io/docs/reference/using-api/api-concepts/#standard-api-terminology
"""

from dataclasses import dataclass
from enum import Enum
from urllib.parse import quote


class Scope(Enum):
    """Whether the objects of a resource are in namespaces."""

    CLUSTER = "Cluster"
    NAMESPACED = "Namespaced"


@dataclass(frozen=True, slots=True)
class ApiResource:
    """One resource in one version. The name of the core group is empty, as in the API."""

    group: str
    version: str
    plural: str
    kind: str
    scope: Scope

    @property
    def api_version(self) -> str:
        """The `apiVersion` of bodies."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified_name(self) -> str:
        """The name that kubectl uses: `resourceslices.resource.k8s.io`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def collection_path(self, namespace: str | None) -> str:
        """The path of all objects of one namespace, or of the cluster where it is None.

        Raises:
            ValueError: a namespace is given for a cluster-scoped resource.
        """
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        if not namespace:
            return f"{root}/{self.plural}"
        if self.scope is Scope.CLUSTER:
            raise ValueError(f"{self.qualified_name} is cluster-scoped: omit the namespace")
        return f"{root}/namespaces/{quote(namespace, safe='')}/{self.plural}"

    def object_path(self, namespace: str | None, name: str, subresource: str | None = None) -> str:
        """The path of one object, or of a subresource of it.

        Raises:
            ValueError: the name is empty, or the namespace does not fit the resource's scope.
        """
        if not name:
            raise ValueError(f"{self.qualified_name}: the name is empty")
        if self.scope is Scope.NAMESPACED and not namespace:
            raise ValueError(
                f"{self.qualified_name} {name!r} is namespaced: the namespace is missing"
            )
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
