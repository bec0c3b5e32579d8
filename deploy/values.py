"""The values of the Helm chart: their types, defaults and descriptions, each in one place.

`settings` of the plugin and of the controller have the types that the processes themselves read.
"""

from collections.abc import Collection, Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema
from pydantic.alias_generators import to_camel

from carina_dra.process.settings import ProcessSettings
from controller.api.crd import KINDS, definition
from controller.settings import Settings as ControllerSettings
from deploy.schema import inlined, of_definition
from kubelet_plugin.settings import PluginSettings

_OF_ANY_POD: Final = frozenset({"driver_name", "http_address", "kubeconfig", "service_account"})
"""Settings that follow from other values, or that the chart's probes rely on."""
_OF_PLUGINS: Final = frozenset(
    {
        *("node_name", "pod_uid", "kubelet_root", "cdi_directory"),
        *("host_filesystem", "driver_root", "host_driver_root", "cgroup_root"),
    }
)
_OF_CONTROLLERS: Final = frozenset({"identity", "lease_namespace", "lease_name", "exclusive"})


def settings_schema(model: type[ProcessSettings], without: Collection[str]) -> dict[str, Any]:
    """The JSON schema of a settings file, less the settings that the chart itself makes."""
    schema = inlined(model.model_json_schema())
    properties = {
        name: value for name, value in schema["properties"].items() if name not in without
    }
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _queue_schema(field: str) -> dict[str, Any]:
    """The JSON schema of a field of Queue, as its definition has it."""
    (kind,) = (kind for kind in KINDS if kind.plural == "queues")
    (version,) = definition(kind)["spec"]["versions"]
    return of_definition(version["schema"]["openAPIV3Schema"]["properties"][field])


PluginFile: TypeAlias = Annotated[
    dict[str, Any], WithJsonSchema(settings_schema(PluginSettings, _OF_ANY_POD | _OF_PLUGINS))
]
ControllerFile: TypeAlias = Annotated[
    dict[str, Any],
    WithJsonSchema(settings_schema(ControllerSettings, _OF_ANY_POD | _OF_CONTROLLERS)),
]
QueueSpec: TypeAlias = Annotated[dict[str, Any], WithJsonSchema(_queue_schema("spec"))]
QueueNamespaces: TypeAlias = Annotated[
    dict[str, Any], WithJsonSchema(_queue_schema("spec")["properties"]["namespaces"])
]
Label: TypeAlias = dict[str, str]
OfPods: TypeAlias = dict[str, Any]
"""A field of pods, which the API server checks."""
OfPodsList: TypeAlias = list[dict[str, Any]]
AbsolutePath: TypeAlias = Annotated[str, Field(pattern=r"^(/[-A-Za-z0-9._+@]+)+$")]
"""A folder of nodes, other than the root."""
ObjectName: TypeAlias = Annotated[
    str, Field(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", max_length=63)
]
"""The name of an object that fits into a label."""
Override: TypeAlias = Annotated[
    str, Field(pattern="^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$", max_length=40)
]
"""A name, or a part of names, that is not the chart's choice; empty for that choice."""
Quantity: TypeAlias = str | int | float


class Part(BaseModel):
    """Values that belong together."""

    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel)


class Image(Part):
    """The image of all processes."""

    repository: str = Field(default="carina-dra", min_length=1, description="registry and name")
    tag: str = Field(default="", description="tag; empty for the version of the chart")
    digest: str = Field(
        default="",
        pattern="^(sha256:[0-9a-f]{64})?$",
        description="digest, such as sha256:…, which is used instead of the tag",
    )
    pull_policy: Literal["IfNotPresent", "Always", "Never"] = Field(
        default="IfNotPresent", description="when nodes pull the image"
    )


class ServiceAccount(Part):
    """The ServiceAccount of a part."""

    create: bool = Field(default=True, description="whether the chart makes it")
    name: str = Field(default="", description="its name; empty for one that the chart chooses")
    annotations: Label = Field(default={}, description="its annotations")


class Resources(Part):
    """Requests and limits of a container."""

    requests: dict[str, Quantity] = Field(default={}, description="requests")
    limits: dict[str, Quantity] = Field(default={}, description="limits")


class Pods(Part):
    """What can be chosen for the pods of every part."""

    priority_class_name: str = Field(default="", description="PriorityClass of the pods")
    update_strategy: OfPods = Field(default={}, description="how pods are replaced")
    termination_grace_period_seconds: int = Field(
        default=30, ge=0, description="seconds that a pod has to end"
    )
    pod_annotations: Label = Field(default={}, description="annotations of the pods")
    pod_labels: Label = Field(default={}, description="labels of the pods, beside the chart's own")
    node_selector: Label = Field(
        default={}, description="labels of the nodes, beside kubernetes.io/os"
    )
    tolerations: OfPodsList = Field(default=[], description="tolerations of the pods")
    affinity: OfPods = Field(default={}, description="affinity of the pods")
    resources: Resources = Field(
        default=Resources(), description="requests and limits of the container"
    )
    extra_env: OfPodsList = Field(default=[], description="environment variables of the container")
    extra_args: list[str] = Field(
        default=[], description="flags of the container; they precede settings"
    )
    extra_volumes: OfPodsList = Field(default=[], description="volumes of the pods")
    extra_volume_mounts: OfPodsList = Field(default=[], description="mounts of the container")
    service_account: ServiceAccount = Field(
        default=ServiceAccount(), description="the ServiceAccount of the pods"
    )


class NodeSettings(Part):
    """Settings of some nodes, which get a DaemonSet of their own."""

    name: Annotated[str, Field(pattern="^(?:[a-z0-9]([-a-z0-9]*[a-z0-9])?)$", max_length=20)]
    node_selector: Annotated[Label, Field(min_length=1, max_length=1)]
    settings: PluginFile = {}


class KubeletPlugin(Pods):
    """The kubelet plugin: a DaemonSet."""

    settings: PluginFile = Field(
        default={},
        description="settings of the plugin, as `carina-kubelet-plugin --help` lists them, with "
        "underscores: `device_order: binpack`",
    )
    node_settings: list[NodeSettings] = Field(
        default=[],
        description="settings of the nodes with one label, in addition to `settings`: a list of "
        "`name`, `nodeSelector` (one label) and `settings`. A node with the labels of several "
        "entries has those of the first",
    )
    node_selection: Literal["all", "nfd"] = Field(
        default="all",
        description="on which nodes the plugin runs: `all`, where it waits for GPUs, or `nfd`, "
        "those that Node Feature Discovery or NVIDIA's GPU Operator has labelled",
    )
    driver_root: AbsolutePath | Literal["", "/"] = Field(
        default="",
        description="folder of the host with the NVIDIA driver. If it is empty, the plugin looks "
        "for it where the host, the GPU Operator, GKE and Talos have it",
    )
    kubelet_dir: AbsolutePath = Field(
        default="/var/lib/kubelet", description="the kubelet's --root-dir"
    )
    cdi_dir: AbsolutePath = Field(
        default="/var/run/cdi",
        description="folder from which the container runtime reads CDI specs",
    )
    priority_class_name: str = Field(
        default="system-node-critical", description="PriorityClass of the pods; empty for none"
    )
    update_strategy: OfPods = Field(
        default={"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        description="how pods are replaced; with `maxSurge`, a node always has a plugin",
    )
    tolerations: OfPodsList = Field(
        default=[{"operator": "Exists"}],
        description="tolerations of the pods; GPU nodes often have taints",
    )
    resources: Resources = Field(
        default=Resources(requests={"cpu": "10m", "memory": "64Mi"}, limits={"memory": "256Mi"}),
        description="requests and limits of the container",
    )


class Sharing(Part):
    """carina-sharing: a DaemonSet on nodes of the plugin, with its tolerations and affinity."""

    enabled: bool | Literal["auto"] = Field(
        default="auto",
        description="whether what processes use of shared GPUs is watched, and claims have MPS "
        "daemons: `auto` for the nodes whose `device_kinds` or `device_kinds_by_gpu`, in the "
        "settings of the plugin, have `share`. `true` is needed where claims for whole GPUs or "
        "partitions have the strategy MPS, such as those for NVIDIA's DRA driver",
    )
    watchdog: Literal["warn", "kill"] = Field(
        default="warn",
        description="what happens when pods use more memory of a shared GPU than given: `warn` "
        "reports it; `kill` also ends the process of them that has the most "
        "(docs/enforcement.md, Watchdog)",
    )
    priority_class_name: str = Field(
        default="system-node-critical", description="PriorityClass of the pods; empty for none"
    )
    pod_annotations: Label = Field(default={}, description="annotations of the pods")
    pod_labels: Label = Field(default={}, description="labels of the pods, beside the chart's own")
    resources: Resources = Field(
        default=Resources(requests={"cpu": "20m", "memory": "64Mi"}, limits={"memory": "256Mi"}),
        description="requests and limits of the container. MPS daemons are outside of it: each "
        "takes about 64 MiB of the node's memory, which a larger request keeps free",
    )
    extra_env: OfPodsList = Field(default=[], description="environment variables of the container")
    extra_volumes: OfPodsList = Field(default=[], description="volumes of the pods")
    extra_volume_mounts: OfPodsList = Field(default=[], description="mounts of the container")
    service_account: ServiceAccount = Field(
        default=ServiceAccount(), description="the ServiceAccount of the pods"
    )


class Controller(Pods):
    """The controller: a Deployment, of whose replicas one leads."""

    enabled: bool = Field(
        default=True,
        description="whether there is a controller. Without it, there are no queues, and "
        "kube-scheduler allocates all devices",
    )
    replicas: int = Field(default=2, ge=0, description="replicas, of which one leads")
    settings: ControllerFile = Field(
        default={},
        description="settings of the controller, as `carina-controller --help` lists them, with "
        "underscores: `placement: binpack`",
    )
    priority_class_name: str = Field(
        default="system-cluster-critical", description="PriorityClass of the pods; empty for none"
    )
    affinity: OfPods = Field(
        default={}, description="affinity of the pods; empty for one that prefers two nodes"
    )
    resources: Resources = Field(
        default=Resources(requests={"cpu": "100m", "memory": "256Mi"}, limits={"memory": "4Gi"}),
        description="requests and limits of the container",
    )


class DeviceClasses(Part):
    """The DeviceClasses that claims name."""

    create: bool = Field(default=True, description="whether the chart makes DeviceClasses")
    extended_resource_name: str = Field(
        default="nvidia.com/gpu",
        description="the extended resource with which pods ask for whole GPUs; empty for none",
    )
    restricted: list[ObjectName] = Field(
        default=[],
        description="DeviceClasses that only namespaces with the label "
        "class.carina.dev/CLASS=allowed may use, such as `[gpu.carina.dev]`, so that others get "
        "shares alone",
    )


class Queue(Part):
    """A Queue that the release makes."""

    name: ObjectName
    spec: QueueSpec


class ReadyMade(Part):
    """Objects to begin with."""

    priority_classes: bool = Field(
        default=False,
        description="whether there are the PriorityClasses inference, interactive, training and "
        "batch, behind the name of the installation: `carina-inference`",
    )
    queues: bool = Field(
        default=False,
        description="whether there are the queues inference, interactive, training and batch, of "
        "which the first are served first when GPUs are short",
    )
    namespaces: QueueNamespaces = Field(
        default={},
        description="which namespaces may use these queues, as in a Queue; empty for all",
    )


class Crds(Part):
    """The CustomResourceDefinitions of Queue and PodGroup."""

    install: bool = Field(default=True, description="whether the chart installs them")
    keep: bool = Field(
        default=True, description="whether they stay, with all queues, when it is uninstalled"
    )


class NetworkPolicy(Part):
    """Who may connect to the HTTP ports."""

    enabled: bool = Field(
        default=True,
        description="whether only namespaces with the label carina.dev/metrics=scrape may connect",
    )


class CriticalPodsQuota(Part):
    """The ResourceQuota for pods of the system's priorities."""

    enabled: bool = Field(
        default=True,
        description="whether the namespace gets one: without it, GKE and others refuse such pods "
        "outside of kube-system",
    )


class PodMonitor(Part):
    """A PodMonitor of the Prometheus operator."""

    enabled: bool = Field(
        default=False, description="whether the plugins and the controller are scraped"
    )
    interval: str = Field(
        default="", description="time between two scrapes; empty for Prometheus' own"
    )
    scrape_timeout: str = Field(default="", description="its time limit; empty for Prometheus' own")
    labels: Label = Field(default={}, description="labels of the PodMonitor, by which it is found")
    relabelings: OfPodsList = Field(default=[], description="relabelings of targets")
    metric_relabelings: OfPodsList = Field(default=[], description="relabelings of series")


class Uninstall(Part):
    """What happens before `helm uninstall` deletes anything."""

    check: bool = Field(
        default=True,
        description="whether it is refused while pods use devices of the driver, or wait for the "
        "controller",
    )
    release: bool = Field(
        default=False,
        description="whether what waits for the controller is freed, instead: pods lose their "
        "gate, claims and queues what holds them, devices their taint. The controller is stopped "
        "first",
    )


class Values(Part):
    """All values."""

    image: Image = Field(default=Image(), description="the image of all processes")
    image_pull_secrets: list[Mapping[Literal["name"], str]] = Field(
        default=[], description="Secrets for the registry, such as `[{name: registry}]`"
    )
    name_override: Override = Field(default="", description="name of the application, in labels")
    fullname_override: Override = Field(
        default="", description="first part of the names of all objects"
    )
    common_labels: Label = Field(default={}, description="labels of all objects")
    common_annotations: Label = Field(default={}, description="annotations of all objects")
    driver_name: str = Field(
        default="gpu.carina.dev",
        pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$",
        max_length=63,
        description="name of the DRA driver. With gpu.nvidia.com, Carina takes the place of "
        "NVIDIA's DRA driver: claims and classes written for it need no change",
    )
    exclusive: bool = Field(
        default=False,
        description="whether all devices are for queues: kube-scheduler then allocates none",
    )
    kubelet_plugin: KubeletPlugin = Field(default=KubeletPlugin(), description="the kubelet plugin")
    sharing: Sharing = Field(
        default=Sharing(), description="carina-sharing, which watches what processes use of GPUs"
    )
    controller: Controller = Field(default=Controller(), description="the controller")
    device_classes: DeviceClasses = Field(
        default=DeviceClasses(), description="the DeviceClasses that claims name"
    )
    queues: list[Queue] = Field(
        default=[],
        description="Queues, each with `name` and `spec` as in docs/api.md. One that is removed "
        "from here stays in the cluster",
    )
    ready_made: ReadyMade = Field(
        default=ReadyMade(), description="queues and priorities to begin with"
    )
    crds: Crds = Field(
        default=Crds(), description="the CustomResourceDefinitions Queue and PodGroup"
    )
    network_policy: NetworkPolicy = Field(
        default=NetworkPolicy(), description="who may connect to the HTTP ports"
    )
    pod_monitor: PodMonitor = Field(
        default=PodMonitor(), description="scraping by the Prometheus operator"
    )
    uninstall: Uninstall = Field(
        default=Uninstall(), description="what happens before it is uninstalled"
    )
    critical_pods_quota: CriticalPodsQuota = Field(
        default=CriticalPodsQuota(),
        description="the ResourceQuota for pods of the system's priorities",
    )
