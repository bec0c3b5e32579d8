"""The policy of opaque configurations agrees with what the plugin reads, on a real API server."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from carina_dra.config import nvidia
from carina_dra.config.device import API_VERSION, DeviceConfigError
from carina_dra.config.reading import parse_device_config
from carina_dra.kube.api_resource import DEVICE_CLASSES, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from carina_dra.kube.client import Client
from carina_dra.kube.errors import ApiError
from carina_dra.kube.kubeconfig import from_kubeconfig
from simulation.kubernetes.cluster import Cluster
from simulation.kubernetes.process import wait_for

DRIVER = "gpu.carina.dev"
_GPU = {"apiVersion": API_VERSION, "kind": "GpuConfig"}
_MIG = {"apiVersion": API_VERSION, "kind": "MigDeviceConfig"}
_SHARE = {"apiVersion": API_VERSION, "kind": "ShareConfig"}
_NVIDIA = {"apiVersion": nvidia.API_VERSION, "kind": "GpuConfig"}
_NVIDIA_MIG = {"apiVersion": nvidia.API_VERSION, "kind": "MigDeviceConfig"}


def _by_mps(**limits: Any) -> dict[str, Any]:
    return {"sharing": {"strategy": "MPS", "mpsConfig": limits}}


def _sliced(**fields: Any) -> dict[str, Any]:
    return {"sharing": {"strategy": "TimeSlicing", **fields}}


_LIMITS = {
    "defaultActiveThreadPercentage": 50,
    "defaultPinnedDeviceMemoryLimit": "10Gi",
    "defaultPerDevicePinnedMemoryLimit": {"0": "1Mi", "GPU-1": 1048576},
    "multiUser": True,
}

ACCEPTED: list[dict[str, Any]] = [
    _GPU,
    {**_GPU, "sharing": None},
    {**_GPU, **_sliced()},
    {**_GPU, **_sliced(timeSlicingConfig={})},
    {**_GPU, **_sliced(timeSlicingConfig={"interval": "Long"})},
    {**_MIG, **_sliced()},
    _SHARE,
    {**_SHARE, "enforcement": {"memory": "kernel", "cores": "time-slice"}},
    {**_SHARE, "enforcement": {}, "timeSlicing": None},
    {**_SHARE, "enforcement": {"memory": ["mps", "watchdog"], "cores": []}},
    {**_SHARE, "timeSlicing": {"interval": "Short"}},
    _NVIDIA,
    {**_NVIDIA, **_sliced(timeSlicingConfig={"interval": None})},
    {**_NVIDIA, **_sliced(timeSlicingConfig=None, mpsConfig=None)},
    {**_NVIDIA_MIG, **_sliced()},
    {**_GPU, "sharing": {"strategy": "MPS"}},
    {**_MIG, "sharing": {"strategy": "MPS", "mpsConfig": {}}},
    {**_NVIDIA, "sharing": {"strategy": "MPS", "mpsConfig": _LIMITS, "timeSlicingConfig": None}},
    {**_NVIDIA_MIG, "sharing": {"strategy": "MPS", "mpsConfig": None}},
]
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({}, "has another apiVersion or kind than the driver reads; write apiVersion"),
    ({"kind": "GpuConfig"}, "has another apiVersion or kind"),
    ({**_GPU, "kind": 3}, "has another apiVersion or kind"),
    ({**_GPU, "kind": "GPUConfig"}, "has another apiVersion or kind"),
    ({**_GPU, "apiVersion": "resource.carina.dev/v9"}, "has another apiVersion or kind"),
    ({**_GPU, "shareing": {}}, "opaque.parameters.shareing is not a field of resource.carina.dev"),
    ({**_GPU, "it's": 1}, "opaque.parameters.it's is not a field of"),
    ({**_GPU, "sharing": []}, "sharing of resource.carina.dev/v1alpha1 GpuConfig must be an obj"),
    ({**_GPU, "sharing": {}}, "sharing.strategy of resource.carina.dev/v1alpha1 GpuConfig is miss"),
    ({**_GPU, "sharing": {"strategy": "mps"}}, "GpuConfig: write MPS or TimeSlicing"),
    ({**_GPU, **_by_mps(multiUser=True)}, "sharing.mpsConfig.multiUser is not a field"),
    ({**_GPU, **_by_mps(defaultActiveThreadPercentage=0)}, "write an integer from 1 to 100"),
    ({**_GPU, **_sliced(timeSlicingConfig=None)}, "timeSlicingConfig of resource.carina.dev/v1alp"),
    ({**_GPU, **_sliced(timeSlicingConfig={"interval": 1})}, "write Default or Short or Medium or"),
    ({**_GPU, **_sliced(mpsConfig={})}, "sharing.mpsConfig is not a field"),
    ({**_MIG, **_sliced(timeSlicingConfig={})}, "sharing.timeSlicingConfig is not a field"),
    ({**_SHARE, "enforcement": None}, "enforcement of resource.carina.dev/v1alpha1 ShareConfig"),
    ({**_SHARE, "enforcement": {"memory": "hard"}}, "memory of resource.carina.dev/v1alpha1 Share"),
    (
        {**_SHARE, "enforcement": {"memory": ["mps", "none"]}},
        "write none or kernel or mps or wat",
    ),
    ({**_SHARE, "enforcement": {"memroy": "mps"}}, "enforcement.memroy is not a field"),
    ({**_NVIDIA, **_by_mps(defaultActiveThreadPercentage=101)}, "an integer from 0 to 100"),
    ({**_NVIDIA, **_by_mps(defaultPinnedDeviceMemoryLimit="1Ki")}, "a quantity of at least 1Mi"),
    ({**_NVIDIA, **_by_mps(defaultPinnedDeviceMemoryLimit=1.5)}, "a quantity of at least 1Mi"),
    ({**_NVIDIA, **_by_mps(defaultPerDevicePinnedMemoryLimit={"0": 1})}, "of at least 1Mi"),
    ({**_NVIDIA_MIG, **_by_mps(multiUser="yes")}, "multiUser of resource.nvidia.com/v1beta1 Mig"),
    (
        {**_NVIDIA, "sharing": {"strategy": "MPS", "timeSlicingConfig": {}}},
        "it is for strategy TimeSlicing, but the strategy is MPS; remove it",
    ),
    ({**_NVIDIA, **_sliced(mpsConfig={})}, "it is for strategy MPS, but the strategy is TimeSlic"),
    ({**_NVIDIA_MIG, **_sliced(timeSlicingConfig={})}, "timeSlicingConfig is not a field"),
    ({**_NVIDIA, "kind": "VfioDeviceConfig"}, "VfioDeviceConfig, which configures GPU passthrough"),
    ({**_NVIDIA, "kind": "ShareConfig"}, "has another apiVersion or kind"),
]


@pytest.fixture(scope="module")
def client(cluster: Cluster) -> Iterator[Client]:
    """The API server, as an administrator, once the policy holds."""
    cluster.install_carina()
    cluster.create_namespace("configured")
    with Client(from_kubeconfig(cluster.kubeconfig)) as client:
        wait_for("the policy to hold", lambda: verdict(client, {}) is not None)
        yield client


def _config(parameters: dict[str, Any], driver: str = DRIVER) -> dict[str, Any]:
    return {"opaque": {"driver": driver, "parameters": parameters}}


def _claim_spec(configs: list[dict[str, Any]]) -> dict[str, Any]:
    request = {"name": "gpu", "exactly": {"deviceClassName": DRIVER}}
    return {"devices": {"requests": [request], "config": configs}}


def _create(client: Client, kind: str, spec: dict[str, Any]) -> str | None:
    """What is said about an object, which is not kept if nothing is."""
    resource = {
        "ResourceClaim": RESOURCE_CLAIMS,
        "ResourceClaimTemplate": RESOURCE_CLAIM_TEMPLATES,
        "DeviceClass": DEVICE_CLASSES,
    }[kind]
    namespace = None if kind == "DeviceClass" else "configured"
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": "configured", **({"namespace": namespace} if namespace else {})},
        "spec": spec,
    }
    try:
        client.create(resource, body)
    except ApiError as error:
        return str(error)
    client.delete(resource, "configured", namespace=namespace)
    return None


def verdict(client: Client, parameters: dict[str, Any]) -> str | None:
    """What is said about a configuration in a claim."""
    return _create(client, "ResourceClaim", _claim_spec([_config(parameters)]))


def _is_read(parameters: dict[str, Any]) -> bool:
    try:
        parse_device_config("config[0]", parameters)
    except DeviceConfigError:
        return False
    return True


@pytest.mark.parametrize("parameters", ACCEPTED, ids=str)
def test_what_the_plugin_reads_is_accepted(client: Client, parameters: dict[str, Any]) -> None:
    assert _is_read(parameters)
    assert verdict(client, parameters) is None


@pytest.mark.parametrize(("parameters", "said"), REFUSED, ids=lambda value: str(value)[:60])
def test_what_the_plugin_does_not_read_is_refused(
    client: Client, parameters: dict[str, Any], said: str
) -> None:
    assert not _is_read(parameters)
    answer = verdict(client, parameters)
    assert answer is not None
    assert said in answer
    assert "spec.devices.config[0].opaque.parameters" in answer


_NAMES = st.sampled_from(
    ["strategy", "timeSlicingConfig", "interval", "mpsConfig", "memory", "cores", "other"]
)
_VALUES = st.recursive(
    st.sampled_from(["TimeSlicing", "MPS", "Default", "Long", "none", "mps", "kernel", "x"])
    | st.sampled_from([None, 1, True, 0.5]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=4,
)
_INTERVALS = st.sampled_from([None, "Default", "Short", "long"])
_SLICING = st.fixed_dictionaries({}, optional={"interval": _INTERVALS}) | st.none() | _VALUES
_QUANTITIES = st.sampled_from(["1Gi", "1Mi", "1Ki", "1e9", "-1Gi", "Gi", "", 2**20, 1, 1.5, None])
_LIMITED = st.fixed_dictionaries(
    {},
    optional={
        "defaultActiveThreadPercentage": st.sampled_from([None, 0, 1, 100, 101, -1, 1.5, "1"]),
        "defaultPinnedDeviceMemoryLimit": _QUANTITIES,
        "defaultPerDevicePinnedMemoryLimit": st.none()
        | st.dictionaries(st.sampled_from(["0", "GPU-1"]), _QUANTITIES),
        "multiUser": st.sampled_from([None, True, False, "true"]),
    },
)
_SHARING = st.fixed_dictionaries(
    {"strategy": st.sampled_from(["TimeSlicing", "MPS"])},
    optional={"timeSlicingConfig": _SLICING, "mpsConfig": _LIMITED | _VALUES},
)
_LEVELS = st.sampled_from(["none", "mps", "kernel", "time-slice", 1])
_ENFORCEMENT = st.fixed_dictionaries(
    {},
    optional={name: _LEVELS | st.lists(_LEVELS, max_size=3) for name in ("memory", "cores")},
)
CONFIGS = st.fixed_dictionaries(
    {
        "apiVersion": st.sampled_from([API_VERSION, nvidia.API_VERSION]),
        "kind": st.sampled_from(["GpuConfig", "MigDeviceConfig", "ShareConfig"]),
    },
    optional={
        "sharing": _SHARING | _VALUES,
        "enforcement": _ENFORCEMENT | _VALUES,
        "timeSlicing": _SLICING,
        "other": _VALUES,
    },
)


@given(parameters=CONFIGS)
@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_api_server_and_plugin_agree(client: Client, parameters: dict[str, Any]) -> None:
    assert (verdict(client, parameters) is None) == _is_read(parameters)


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("ResourceClaim", "spec.devices.config[1].opaque.parameters.shareing"),
        ("ResourceClaimTemplate", "spec.spec.devices.config[1].opaque.parameters.shareing"),
        ("DeviceClass", "spec.config[1].opaque.parameters.shareing"),
    ],
)
def test_the_place_of_the_mistake_is_named(client: Client, kind: str, path: str) -> None:
    configs = [_config(_GPU), _config({**_GPU, "shareing": {}})]
    spec = {
        "ResourceClaim": _claim_spec(configs),
        "ResourceClaimTemplate": {"spec": _claim_spec(configs)},
        "DeviceClass": {"config": configs},
    }[kind]
    answer = _create(client, kind, spec)
    assert answer is not None
    assert path in answer


def test_configurations_of_other_drivers_are_not_looked_at(client: Client) -> None:
    configs = [_config({"shareing": 1}, "gpu.example.com"), _config(_GPU)]
    assert _create(client, "ResourceClaim", _claim_spec(configs)) is None


def test_the_largest_claims_are_looked_at(client: Client) -> None:
    """As many configurations as the API has, each as large as it may be."""
    large = {**_SHARE, **{f"field-{number:06}": None for number in range(400)}}
    answer = _create(client, "ResourceClaim", _claim_spec([_config(large)] * 32))
    assert answer is not None
    assert "config[0].opaque.parameters.field-" in answer
    foreign = [_config(large, "gpu.example.com") for _ in range(32)]
    assert _create(client, "ResourceClaim", _claim_spec(foreign)) is None


def test_the_longest_lists_are_looked_at(client: Client) -> None:
    memory = ["mps"] * 1500
    long = {**_SHARE, "enforcement": {"memory": memory, "cores": []}}
    wrong = {**_SHARE, "enforcement": {"memory": [*memory, {"mps": []}]}}
    assert verdict(client, long) is None
    answer = _create(client, "ResourceClaim", _claim_spec([_config(long)] * 31 + [_config(wrong)]))
    assert answer is not None
    assert "config[31].opaque.parameters.enforcement.memory" in answer


def test_a_class_from_before_the_policy_can_be_labelled(client: Client, cluster: Cluster) -> None:
    cluster.kubectl("delete", "validatingadmissionpolicybinding", "carina-device-configuration")
    spec = {"config": [_config({})]}
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "old"},
        "spec": spec,
    }
    wait_for("the policy to go", lambda: _create(client, "DeviceClass", spec) is None)
    client.create(DEVICE_CLASSES, body)
    cluster.install_carina()
    wait_for("the policy to hold", lambda: verdict(client, {}) is not None)

    cluster.kubectl("label", "deviceclass", "old", "example.com/team=a")

    cluster.kubectl("delete", "deviceclass", "old")


_BY_MPS = {**_SHARE, "enforcement": {"memory": ["mps", "watchdog"]}}
_CORES_BY_MPS = {**_SHARE, "enforcement": {"cores": "mps"}}


def _devices(
    ask: dict[str, Any],
    parameters: dict[str, Any],
    *,
    requests: list[str] | None = None,
    constraints: list[dict[str, Any]] | None = None,
    alternative: bool = False,
) -> dict[str, Any]:
    asked = {"deviceClassName": DRIVER, **ask}
    request: dict[str, Any] = {"name": "share", "exactly": asked}
    if alternative:
        request = {"name": "share", "firstAvailable": [{"name": "many", **asked}]}
    other = {"name": "other", "exactly": {"deviceClassName": DRIVER}}
    config = {**_config(parameters), **({"requests": requests} if requests else {})}
    return {
        "requests": [request, other],
        "config": [config],
        **({"constraints": constraints} if constraints else {}),
    }


_TWO = {"allocationMode": "ExactCount", "count": 2}


@pytest.mark.parametrize(
    "devices",
    [
        _devices(_TWO, _BY_MPS),
        _devices({"allocationMode": "All"}, _BY_MPS),
        _devices(_TWO, _CORES_BY_MPS, requests=["share"]),
        _devices(_TWO, _BY_MPS, alternative=True),
        _devices(_TWO, _BY_MPS, requests=["share/many"], alternative=True),
    ],
)
@pytest.mark.parametrize("kind", ["ResourceClaim", "ResourceClaimTemplate"])
def test_several_shares_by_mps_are_refused(
    client: Client, devices: dict[str, Any], kind: str
) -> None:
    spec: dict[str, Any] = {"devices": devices}
    answer = _create(client, kind, spec if kind == "ResourceClaim" else {"spec": spec})
    assert answer is not None
    assert "request share asks for several devices, and a ShareConfig demands mps" in answer
    assert "matchAttribute: gpu.carina.dev/uuid" in answer


@pytest.mark.parametrize(
    "devices",
    [
        _devices({}, _BY_MPS),
        _devices({"allocationMode": "ExactCount", "count": 1}, _BY_MPS, alternative=True),
        _devices(_TWO, _SHARE),
        _devices(_TWO, {**_SHARE, "enforcement": {"memory": "kernel"}}),
        _devices(_TWO, _BY_MPS, requests=["other"]),
        _devices(
            _TWO,
            _BY_MPS,
            constraints=[{"requests": ["share"], "matchAttribute": f"{DRIVER}/uuid"}],
        ),
    ],
)
def test_other_shares_by_mps_are_accepted(client: Client, devices: dict[str, Any]) -> None:
    assert _create(client, "ResourceClaim", {"devices": devices}) is None
