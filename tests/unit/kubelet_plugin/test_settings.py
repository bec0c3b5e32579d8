"""The plugin's settings, and what follows from them."""

from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from carina_dra.nvidia.driver_location import locations
from carina_dra.process.settings import SettingsError, load
from kubelet_plugin.devices.kind import DeviceKind
from kubelet_plugin.devices.kind_choice import ByMinor, ByProduct, KindRule
from kubelet_plugin.devices.order import DeviceOrder
from kubelet_plugin.settings import PluginSettings
from tests.samples.gpus import gpu


def loaded(*flags: str, **environment: str) -> PluginSettings:
    return load(PluginSettings, flags, environment, program="plugin", version="1")


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ((), "node_name is not set; set --node-name or CARINA_NODE_NAME"),
        (("--node-name", "Node"), "node_name is 'Node', set by the flags"),
        (("--node-name", "node-"), "node_name is 'node-', set by the flags"),
        (("--node-name", "node\n"), r"node_name is 'node\n', set by the flags"),
        (("--node-name", "n", "--driver-name", "gpu-.example"), "driver_name is 'gpu-.example'"),
        (("--node-name", "n", "--poll-seconds", "0"), "greater than 0"),
        (("--node-name", "n", "--repair-seconds", "0"), "greater than 0"),
        (("--node-name", "n", "--hang-seconds", "0.2"), "hang_seconds is '0.2', set by the flags"),
        (("--node-name", "n", "--driver-root", "usr"), "must be an absolute path"),
        (("--node-name", "n", "--device-kinds", "gpu,mug"), "'mug' is not a kind of device; write"),
        (("--node-name", "n", "--device-kinds", ""), "'' is not a kind of device; write"),
        (("--node-name", "n", "--device-order", "full"), "'none', 'binpack', 'spread' or 'frag"),
        (("--node-name", "n", "--reorder-seconds", "0.5"), "greater than or equal to 1"),
        (("--node-name", "n", "--kubelet-root", "/" + "x" * 90), "longer than the 107 bytes"),
    ],
)
def test_errors_name_the_setting_and_the_allowed_values(
    flags: tuple[str, ...], problem: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        loaded(*flags)
    assert problem in str(caught.value)


ROOT, HOST_ROOT, FILES = "--driver-root", "--host-driver-root", "--host-filesystem"


@pytest.mark.parametrize(
    ("flags", "path", "host_path"),
    [
        ((HOST_ROOT, "/run/nvidia/driver"), "/run/nvidia/driver", "/run/nvidia/driver"),
        ((FILES, "/host", HOST_ROOT, "/opt/nvidia"), "/host/opt/nvidia", "/opt/nvidia"),
        ((FILES, "/host", ROOT, "/host/opt/nvidia"), "/host/opt/nvidia", "/opt/nvidia"),
        ((FILES, "/host", ROOT, "/host"), "/host", "/"),
        ((ROOT, "/nvidia", HOST_ROOT, "/opt/nvidia"), "/nvidia", "/opt/nvidia"),
    ],
)
def test_a_driver_root_that_is_set_is_the_only_one(
    flags: tuple[str, ...], path: str, host_path: str
) -> None:
    (location,) = loaded("--node-name", "n", *flags).driver_locations
    assert (str(location.path), str(location.host_path)) == (path, host_path)


def test_the_driver_is_searched_unless_its_root_is_set() -> None:
    assert loaded("--node-name", "n", FILES, "/host").driver_locations == locations(Path("/host"))


def test_a_driver_root_outside_the_hosts_files_needs_its_path_on_the_host() -> None:
    with pytest.raises(SettingsError, match="not below host_filesystem /host; set host_driver_ro"):
        loaded("--node-name", "n", FILES, "/host", ROOT, "/nvidia")


@pytest.mark.parametrize(
    ("flags", "kinds"),
    [
        ((), {"gpu", "monitor"}),
        (("--driver-name", "gpu.nvidia.com"), {"gpu"}),
        (("--driver-name", "gpu.nvidia.com", "--device-kinds", "gpu, monitor"), {"gpu", "monitor"}),
        (("--device-kinds", "monitor"), {"monitor"}),
    ],
)
def test_kinds_that_are_published(flags: tuple[str, ...], kinds: set[str]) -> None:
    assert loaded("--node-name", "n", *flags).kind_choice.of_node == kinds


def test_kinds_by_gpu_are_rules_in_their_order(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(
        "device_kinds_by_gpu:\n"
        "- {minor: 0, kinds: [gpu]}\n"
        "- {product: NVIDIA A100*, kinds: [mig, monitor]}\n"
    )
    assert loaded("--node-name", "n", "--config", str(file)).kind_choice.rules == (
        KindRule(ByMinor(0), frozenset({DeviceKind.GPU})),
        KindRule(ByProduct("NVIDIA A100*"), frozenset({DeviceKind.MIG, DeviceKind.MONITOR})),
    )


def test_a_rule_of_kinds_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(
        "device_kinds_by_gpu:\n- {minor: 0, kinds: [gpu]}\n- {index: 1, kinds: [gpu]}\n"
    )
    with pytest.raises(
        SettingsError, match=r"device_kinds_by_gpu is .* entry 2 has the unknown key index; write"
    ):
        loaded("--node-name", "n", "--config", str(file))


def test_share_cores_is_ten_percent_unless_it_is_set() -> None:
    assert loaded("--node-name", "n").publish_settings.share_cores == 10
    assert loaded("--node-name", "n", "--share-cores", "25").publish_settings.share_cores == 25


@pytest.mark.parametrize("cores", ["0", "101", "2.5", "ten"])
def test_share_cores_must_be_a_percentage(cores: str) -> None:
    with pytest.raises(SettingsError, match=f"share_cores is '{cores}', set by the flags"):
        loaded("--node-name", "n", "--share-cores", cores)


def test_share_cores_must_not_be_less_than_the_least_share() -> None:
    with pytest.raises(
        SettingsError,
        match="share_cores 5 is less than the 10 percent that least_share 1/10 gives every share; "
        "raise share_cores, or lower least_share",
    ):
        loaded("--node-name", "n", "--share-cores", "5")
    chosen = loaded("--node-name", "n", "--share-cores", "5", "--least-share", "1/20")
    assert chosen.publish_settings.share_cores == 5


def test_share_cores_that_is_not_set_is_no_error_whatever_the_least_share() -> None:
    assert loaded("--node-name", "n", "--least-share", "1/2").least_share == Fraction(1, 2)


def test_least_share_is_a_tenth_unless_it_is_set() -> None:
    assert loaded("--node-name", "n").publish_settings.least_share == Fraction(1, 10)
    chosen = loaded("--node-name", "n", "--least-share", "1/7")
    assert chosen.publish_settings.least_share == Fraction(1, 7)


@pytest.mark.parametrize("share", ["0", "1/2000", "1.5", "a tenth"])
def test_least_share_must_be_a_part_of_a_gpu(share: str) -> None:
    with pytest.raises(
        SettingsError, match=rf"least_share is '{share}', set by the flags: must be"
    ):
        loaded("--node-name", "n", "--least-share", share)


@pytest.mark.parametrize("written", ["0.1", "1/10", "'0.100'"])
def test_a_number_in_the_file_is_the_least_share_exactly(tmp_path: Path, written: str) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(f"least_share: {written}\n")
    chosen = loaded("--node-name", "n", "--config", str(file))
    assert chosen.least_share == Fraction(1, 10)


def test_devices_have_no_order_unless_it_is_set() -> None:
    assert loaded("--node-name", "n").device_order is DeviceOrder.NONE
    assert loaded("--node-name", "n", "--device-order", "spread").device_order == "spread"


def test_kinds_can_be_a_list_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("device_kinds: [gpu]\n")
    assert loaded("--node-name", "n", "--config", str(file)).kind_choice.of_node == {"gpu"}


@pytest.mark.parametrize(
    ("uid", "dra", "registration"),
    [
        (None, "dra.sock", "gpu.carina.dev-reg.sock"),
        ("1f", "dra-1f.sock", "gpu.carina.dev-1f-reg.sock"),
    ],
)
def test_the_names_of_sockets_contain_the_uid_of_the_pod(
    uid: str | None, dra: str, registration: str
) -> None:
    settings = loaded("--node-name", "n", *(("--pod-uid", uid) if uid else ()))
    assert settings.dra_socket == Path("/var/lib/kubelet/plugins/gpu.carina.dev") / dra
    assert settings.registration_socket == Path("/var/lib/kubelet/plugins_registry") / registration


MICROK8S = "/var/snap/microk8s/common/var/lib/kubelet"
UID = "0b9f2c1e-5d0a-4c43-9c4e-8d1f0a7b6c55"


@pytest.mark.parametrize(
    ("root", "driver", "dra", "registration"),
    [
        ("/var/lib/kubelet", "d" * 27, f"dra-{UID}.sock", f"{'d' * 27}-{UID}-reg.sock"),
        ("/var/lib/kubelet", "d" * 28, f"dra-{UID}.sock", "dra-lt6qLEI5-eZmvzVYE-reg.sock"),
        ("/var/lib/kubelet", "d" * 36, f"dra-{UID}.sock", "dra-3EOafz9--eZmvzVYE-reg.sock"),
        ("/var/lib/kubelet", "d" * 37, "dra-eZmvzVYE.sock", "dra-tHnfECGR-eZmvzVYE-reg.sock"),
        ("/var/lib/kubelet", "d" * 63, "dra-eZmvzVYE.sock", "dra-3C0PGJ8S-eZmvzVYE-reg.sock"),
        (MICROK8S, "gpu.carina.dev", "dra-eZmvzVYE.sock", "dra-q1OLTOKE-eZmvzVYE-reg.sock"),
        (MICROK8S, "d" * 39, "dra-eZmvzVYE.sock", "dra-KhxN4Uhs-eZmvzVYE-reg.sock"),
    ],
)
def test_names_that_would_make_a_socket_s_path_too_long_are_hashed(
    root: str, driver: str, dra: str, registration: str
) -> None:
    settings = loaded(
        *("--node-name", "n", "--pod-uid", UID, "--kubelet-root", root, "--driver-name", driver)
    )
    assert settings.dra_socket == Path(root, "plugins", driver, dra)
    assert settings.registration_socket == Path(root, "plugins_registry", registration)


@given(
    root=st.integers(1, 80),
    driver=st.from_regex(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True),
    uids=st.lists(st.one_of(st.none(), st.uuids().map(str)), min_size=2, max_size=2, unique=True),
)
def test_sockets_fit_differ_by_pod_and_are_found_by_their_patterns(
    root: int, driver: str, uids: list[str | None]
) -> None:
    try:
        pods = [
            loaded(
                *("--node-name", "n", "--kubelet-root", "/" + "r" * root, "--driver-name", driver),
                *(() if uid is None else ("--pod-uid", uid)),
            )
            for uid in uids
        ]
    except SettingsError:
        assume(False)
        raise
    sockets = [path for pod in pods for path in (pod.dra_socket, pod.registration_socket)]
    assert len(set(sockets)) == 4
    for path in sockets:
        assert len(str(path)) <= 107
        assert any(
            path.parent == folder and path.match(pattern)
            for folder, pattern in pods[0].socket_patterns
        )


@given(
    root=st.integers(1, 80),
    driver=st.from_regex(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True),
    uid=st.none() | st.uuids().map(str),
)
def test_sockets_have_the_names_of_driver_and_pod_wherever_these_fit(
    root: int, driver: str, uid: str | None
) -> None:
    infix = "" if uid is None else f"-{uid}"
    kubelet_root = Path("/" + "r" * root)
    dra = kubelet_root / f"plugins/{driver}/dra{infix}.sock"
    registration = kubelet_root / f"plugins_registry/{driver}{infix}-reg.sock"
    assume(max(len(str(dra)), len(str(registration))) <= 107)
    settings = loaded(
        *("--node-name", "n", "--kubelet-root", str(kubelet_root), "--driver-name", driver),
        *(() if uid is None else ("--pod-uid", uid)),
    )
    assert (settings.dra_socket, settings.registration_socket) == (dra, registration)


def test_a_driver_name_that_cannot_be_in_cdi_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"driver_name is '3d\.example\.com'"):
        loaded("--node-name", "node", "--driver-name", "3d.example.com")


def test_alpha_fields_are_published_only_if_they_are_set() -> None:
    default = loaded("--node-name", "n").publish_settings
    assert (default.host_memory_mib, default.partition_types) == (0, False)
    chosen = loaded("--node-name", "n", "--host-memory-mib", "512", "--partition-types", "true")
    assert chosen.publish_settings.host_memory_mib == 512
    assert chosen.publish_settings.partition_types is True


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--host-memory-mib", "-1"),
        ("--host-memory-mib", "1.5"),
        ("--host-memory-mib", "512Mi"),
        ("--host-memory-mib", str(2**20 + 1)),
        ("--partition-types", "profile"),
        ("--device-metadata", "v1beta1"),
    ],
)
def test_numbers_of_mebibytes_and_switches_that_are_none_are_refused(flag: str, value: str) -> None:
    name = flag.removeprefix("--").replace("-", "_")
    with pytest.raises(SettingsError, match=f"{name} is '{value}', set by the flags"):
        loaded("--node-name", "n", flag, value)


def test_containers_get_device_metadata_only_if_it_is_set() -> None:
    assert loaded("--node-name", "n").device_metadata is False
    chosen = loaded("--node-name", "n", "--device-metadata", "true")
    assert chosen.device_metadata is True
    assert chosen.metadata_directory == chosen.plugin_directory / "device-metadata"


# --- health of GPUs ---


@pytest.mark.parametrize(
    ("flags", "evict"),
    [
        ((), {"lost", "reset", "bus-reset"}),
        (("--evict", "none"), set()),
        (("--evict", "lost, reboot"), {"lost", "reboot"}),
    ],
)
def test_whose_pods_are_evicted(flags: tuple[str, ...], evict: set[str]) -> None:
    assert loaded("--node-name", "n", *flags).publish_settings.evict == evict


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("evict: [lost, hot]", "evict"),
        ("evict: [lost, none]", "evict"),
        ("xid_severity: {63: fatal}", "xid_severity.63"),
        ("xid_severity: {sixty: reset}", "xid_severity.sixty"),
        ("xid_severity: {0: reset}", "xid_severity.0"),
        ("xid_severity: {146: reset}", "only the driver's recovery action tells"),
        ("xid_severity_by_product: {A100: {63: fatal}}", "xid_severity_by_product.A100.63"),
        ("xid_severities: {63: reset}", "xid_severities"),
    ],
)
def test_a_wrong_severity_is_refused_where_it_is(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(f"{text}\n")
    with pytest.raises(SettingsError) as caught:
        loaded("--node-name", "n", "--config", str(file))
    assert problem in str(caught.value)


def test_severities_are_read_from_the_file(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(
        "xid_severity: {63: replace}\nxid_severity_by_product: {NVIDIA A100*: {109: application}}\n"
    )
    rules = loaded("--node-name", "n", "--config", str(file)).xid_rules
    assert rules.severity(63, gpu(0)) == "replace"
    assert rules.severity(109, gpu(0, product_name="NVIDIA A100-SXM4-40GB")) == "application"
    assert rules.severity(109, gpu(0)) == "reset"
