"""The plugin's settings."""

from base64 import urlsafe_b64encode
from collections.abc import Mapping
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, WithJsonSchema, model_validator
from pydantic.functional_validators import AfterValidator, BeforeValidator, PlainValidator

from carina_dra.config.time_slice import TimeSliceInterval
from carina_dra.least_share import DEFAULT_LEAST_SHARE, LEAST, NUMBER, parse_least_share
from carina_dra.process.metavar import Metavar
from carina_dra.process.node_settings import (
    SOCKET_PATH_BYTES,
    NodeProcessSettings,
    fits_socket,
    plugin_directory,
)
from carina_dra.process.settings import DNS_LABELS, FILE_ONLY, AbsolutePath, ClusterSettings
from carina_dra.sharing.files import MPS, SOCKET
from kubelet_plugin.devices.kind import DeviceKind, default_kinds, parse_kinds
from kubelet_plugin.devices.kind_choice import (
    KindChoice,
    KindRule,
    kind_rules_schema,
    parse_kind_rules,
)
from kubelet_plugin.devices.order import DeviceOrder
from kubelet_plugin.devices.publish_settings import (
    DEFAULT_EVICT,
    HOST_MEMORY_MIB,
    SHARE_CORES,
    PublishSettings,
)
from kubelet_plugin.devices.share import least_cores
from kubelet_plugin.inventory.health import EvictionCause
from kubelet_plugin.inventory.xid import XidRules
from kubelet_plugin.inventory.xid_catalogue import BY_ACTION_ONLY, XidSeverity


def _kinds(value: object) -> object:
    return parse_kinds(value) if isinstance(value, str) else value


def _least_share(value: object) -> Fraction:
    return parse_least_share(str(value))


_KIND = f"({'|'.join(DeviceKind)})"
_KindsText = Annotated[str, Field(pattern=rf"^ *{_KIND}( *, *{_KIND})* *\Z")]
DeviceKinds = Annotated[
    frozenset[DeviceKind],
    BeforeValidator(_kinds, json_schema_input_type=_KindsText | list[DeviceKind]),
]
KindRules = Annotated[
    tuple[KindRule, ...], PlainValidator(parse_kind_rules), WithJsonSchema(kind_rules_schema())
]
_FractionText = Annotated[str, Field(pattern=rf"^{NUMBER.pattern}\Z")]
LeastShare = Annotated[
    Fraction,
    PlainValidator(
        _least_share,
        json_schema_input_type=_FractionText | Annotated[float, Field(ge=float(LEAST), le=1)],
    ),
]


def _evictions(value: object) -> object:
    if not isinstance(value, str):
        return value
    words = [word.strip() for word in value.split(",")]
    return [] if words == ["none"] else words


_EVICTION = f"({'|'.join(EvictionCause)})"
_EvictionsText = Annotated[str, Field(pattern=rf"^ *(none|{_EVICTION}( *, *{_EVICTION})*) *\Z")]
Evictions = Annotated[
    frozenset[EvictionCause],
    BeforeValidator(_evictions, json_schema_input_type=_EvictionsText | list[EvictionCause]),
]


def _xid(number: int) -> int:
    if number in BY_ACTION_ONLY:
        raise ValueError(
            f"XID {number} is an error of NVLink whose remedy only the driver's recovery action "
            "tells; remove it from the setting"
        )
    return number


XidNumber = Annotated[int, Field(ge=1, le=9999), AfterValidator(_xid)]
Product = Annotated[str, StringConstraints(min_length=1, max_length=128)]


class PluginSettings(ClusterSettings, NodeProcessSettings):
    """The settings of the plugin."""

    DESCRIPTION = (
        "Carina's kubelet plugin. It offers this node's GPUs through Dynamic Resource Allocation "
        "(DRA)."
    )

    node_name: str = Field(
        pattern=DNS_LABELS, max_length=253, description="name of this node's Node object"
    )
    pod_uid: str | None = Field(
        None,
        pattern=r"^[-a-zA-Z0-9]{1,63}\Z",
        description="UID of this pod. It is part of the sockets' names, so that two plugins can "
        "run side by side during a rolling update",
    )
    cdi_directory: AbsolutePath = Field(
        Path("/var/run/cdi"),
        description="folder from which the container runtime reads CDI specs",
    )
    cdi_hook: AbsolutePath | None = Field(
        None,
        description="path of nvidia-cdi-hook on the host; default: searched below driver_root",
    )
    poll_seconds: float = Field(
        5.0, gt=0, le=300, description="seconds between reads of the node's GPUs"
    )
    hang_seconds: float = Field(
        30.0,
        ge=1,
        le=3600,
        description="seconds after which this node's GPUs get the taint unreadable, because a "
        "call to the NVIDIA driver does not return; after twice this time, no claim is prepared",
    )
    recovery_seconds: float = Field(
        60.0,
        ge=0,
        le=1800,
        description="seconds for which a GPU that failed has to answer before its taint is "
        "removed; twice as long after each relapse, up to 1800",
    )
    evict: Evictions | None = Field(
        None,
        description="problems of a GPU because of which its pods are evicted (the taint has the "
        "effect NoExecute), separated by commas: lost, reset, bus-reset, reboot; or none; default: "
        "lost,reset,bus-reset",
    )
    xid_severity: Annotated[Mapping[XidNumber, XidSeverity], FILE_ONLY] = Field(
        {},
        description="what follows from XIDs where the driver has no recovery action, by number: "
        "ignore, application, degraded, drain, reset, reboot or replace; default: as "
        "docs/health.md says",
    )
    xid_severity_by_product: Annotated[
        Mapping[Product, Mapping[XidNumber, XidSeverity]], FILE_ONLY
    ] = Field(
        {},
        description="the same for GPUs whose product name matches a pattern such as NVIDIA A100*; "
        "the first that matches and has the XID counts",
    )
    repair_seconds: float = Field(
        60.0,
        gt=0,
        le=3600,
        description="seconds between checks that prepared claims still have what they need",
    )
    device_kinds: DeviceKinds | None = Field(
        None,
        description="ways in which GPUs are offered, separated by commas: gpu (whole), mig "
        "(partitions, made for claims), share, monitor; default: gpu,monitor, or gpu if "
        "driver_name is gpu.nvidia.com",
    )
    device_kinds_by_gpu: Annotated[KindRules, FILE_ONLY, Metavar("LIST")] = Field(
        (),
        description="ways in which some GPUs are offered instead: a list of entries with kinds, "
        "and minor (the N of gpu-N), uuid or product (a pattern such as NVIDIA A100*) of the GPUs; "
        "the first entry that names a GPU counts",
    )
    share_cores: int | None = Field(
        None,
        ge=1,
        le=100,
        description="percent of a GPU's cores that a share gets if its request asks for no amount; "
        "its memory is in proportion; default: 10, or least_share if that is more",
    )
    least_share: LeastShare = Field(
        DEFAULT_LEAST_SHARE,
        description="the least part of a GPU's memory and cores that a share has, whatever its "
        "request asks for, and that a partition or a share counts in the queues of the controller: "
        "a fraction such as 1/7, or a decimal such as 0.1, from 1/1000 to 1",
    )
    share_time_slice: TimeSliceInterval = Field(
        "Default",
        description="length of the time slices of GPUs that are shared, unless the DeviceClass of "
        "one of the shares demands another: Default (the driver's), Short, Medium or Long",
    )
    share_time_slice_by_claim: bool = Field(
        default=False,
        description="whether a claim for a share may choose the length of the time slices of its "
        "GPU, which the shares of all other claims have too, if its DeviceClass does not",
    )
    device_order: DeviceOrder = Field(
        DeviceOrder.NONE,
        description="which of the devices that fit kube-scheduler takes first: none (by minor "
        "number), binpack (of the fullest GPU), spread (of the emptiest), or fragmentation (that "
        "which leaves the most large partitions)",
    )
    reorder_seconds: float = Field(
        10.0,
        ge=1,
        le=3600,
        description="least number of seconds between two writes of a new device_order",
    )
    host_memory_mib: int = Field(
        0,
        ge=0,
        le=HOST_MEMORY_MIB,
        description="memory of the node, in MiB, that each pod needs for each device that it has, "
        "beside its own requests; needs the feature gate DRANodeAllocatableResources; 0 publishes "
        "none",
    )
    partition_types: bool = Field(
        default=False,
        description="whether ResourcePoolStatusRequests can count which partitions "
        "are left; needs the feature gate DRAPartitionableDevicesType",
    )
    device_metadata: bool = Field(
        default=False,
        description="whether containers get files with the attributes of their "
        "devices, below /var/run/kubernetes.io/dra-device-attributes (KEP-5304)",
    )
    beside_other_drivers: Literal["withhold", "publish"] = Field(
        "withhold",
        description="what to do with GPUs that a device plugin or another DRA driver also offers "
        "on this node: withhold them, or publish them, in which case two pods may get the same GPU",
    )

    @model_validator(mode="after")
    def _sockets_fit(self) -> Self:
        for path in (self.dra_socket, self.registration_socket):
            if not fits_socket(path):
                raise ValueError(
                    f"kubelet_root and driver_name make the socket path {path}, longer than the "
                    f"{SOCKET_PATH_BYTES} bytes that Linux allows; shorten one of them"
                )
        return self

    @model_validator(mode="after")
    def _default_share_is_not_less_than_the_least(self) -> Self:
        least = least_cores(self.least_share)
        if self.share_cores is not None and self.share_cores < least:
            raise ValueError(
                f"share_cores {self.share_cores} is less than the {least} percent that least_share "
                f"{self.least_share} gives every share; raise share_cores, or lower least_share"
            )
        return self

    @property
    def oldest_inventory(self) -> float:
        """Seconds since the last read of the GPUs after which no claim is prepared."""
        return self.hang_seconds + max(self.hang_seconds, self.poll_seconds)

    @property
    def kind_choice(self) -> KindChoice:
        """The kinds of devices that are published of each GPU."""
        of_node = (
            default_kinds(self.driver_name) if self.device_kinds is None else self.device_kinds
        )
        return KindChoice(of_node, self.device_kinds_by_gpu)

    @property
    def publish_settings(self) -> PublishSettings:
        """How devices are published."""
        return PublishSettings(
            self.driver_name,
            SHARE_CORES if self.share_cores is None else self.share_cores,
            self.host_memory_mib,
            self.partition_types,
            self.least_share,
            DEFAULT_EVICT if self.evict is None else self.evict,
        )

    @property
    def xid_rules(self) -> XidRules:
        """What XIDs mean."""
        return XidRules(self.xid_severity, self.xid_severity_by_product)

    @property
    def dra_socket(self) -> Path:
        """The socket of the DRA service.

        If its path would be too long, a hash replaces the pod's UID.
        """
        if self.pod_uid is None:
            return self.plugin_directory / "dra.sock"
        path = self.plugin_directory / f"dra-{self.pod_uid}.sock"
        return path if fits_socket(path) else path.with_name(f"dra-{_digest(self.pod_uid)}.sock")

    @property
    def registration_socket(self) -> Path:
        """The socket of the registration service, in the folder that the kubelet watches.

        If its path would be too long, hashes replace the driver's name and the pod's UID.
        """
        driver, uid = self.driver_name, self.pod_uid
        path = self._registry / f"{driver}{'' if uid is None else f'-{uid}'}-reg.sock"
        if fits_socket(path):
            return path
        return path.with_name(
            f"dra-{_digest(driver)}{'' if uid is None else f'-{_digest(uid)}'}-reg.sock"
        )

    @property
    def socket_patterns(self) -> tuple[tuple[Path, str], ...]:
        """Folders, and the glob patterns that match the sockets of all pods of the driver."""
        return (
            (self.plugin_directory, "dra*.sock"),
            (self._registry, f"{self.driver_name}-*reg.sock"),
            (self._registry, f"dra-{_digest(self.driver_name)}-*reg.sock"),
        )

    @property
    def _registry(self) -> Path:
        return self.kubelet_root / "plugins_registry"

    @property
    def checkpoint(self) -> Path:
        """The file that records prepared claims."""
        return self.plugin_directory / "checkpoint.jsonl"

    @property
    def mig_intents(self) -> Path:
        """The folder that records which MIG instances Carina makes."""
        return mig_intents(self.kubelet_root, self.driver_name)

    @property
    def metadata_directory(self) -> Path:
        """The folder of the files with device metadata, which are mounted into containers."""
        return self.plugin_directory / "device-metadata"

    @property
    def memory_limits(self) -> Path:
        """The folder that records which limits of memory Carina sets for pods."""
        return self.plugin_directory / "memory-limits"

    @property
    def mps_records(self) -> Path:
        """The folder that records which MPS daemons claims need."""
        return self.plugin_directory / "mps-daemons"

    @property
    def mps_folders(self) -> Path:
        """The folder in which carina-sharing has the folders of MPS daemons."""
        return self.plugin_directory / MPS

    @property
    def pod_resources(self) -> Path:
        """The socket on which the kubelet says which devices of device plugins pods have."""
        return self.kubelet_root / "pod-resources" / "kubelet.sock"

    @property
    def sharing_socket(self) -> Path:
        """The socket of carina-sharing, which watches what shares use."""
        return self.plugin_directory / SOCKET

    @property
    def release_phase(self) -> Path:
        """The file that records how far a release of the node's GPUs has come."""
        return self.plugin_directory / "release-phase"

    @property
    def lock(self) -> Path:
        """The file that is locked while prepared claims change."""
        return self.plugin_directory / "serialize.lock"


def mig_intents(kubelet_root: Path, driver_name: str) -> Path:
    """Returns the folder that records which MIG instances a driver makes."""
    return plugin_directory(kubelet_root, driver_name) / "mig"


def _digest(text: str) -> str:
    """48 bits of a SHA-256 in 8 characters: enough to keep a node's drivers and pods apart."""
    return urlsafe_b64encode(sha256(text.encode()).digest()[:6]).decode()
