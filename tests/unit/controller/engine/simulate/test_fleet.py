"""The devices of simulated nodes are those that the kubelet plugin publishes."""

from pathlib import Path

import pytest
import yaml

from carina_dra.manifests.validation import problems
from carina_dra.resource import DeviceClass, ResourceSlice, StringAttribute, decode
from controller.engine.simulate.fleet import GpuUse, NodeTemplate, device_classes
from kubelet_plugin.devices.device import of_kinds
from kubelet_plugin.devices.kind import DeviceKind
from tests.samples.golden_slices import simulated_devices

_ALL = (GpuUse.GPU, GpuUse.MIG, GpuUse.SHARE)
_CLASSES = Path(__file__).parents[5] / "deploy" / "deviceclass.yaml"


def slices(*kinds: GpuUse, gpus: int = 8) -> tuple[ResourceSlice, ...]:
    template = NodeTemplate("n", 1000, 2**30, gpus=gpus, devices=kinds)
    return template.slices("n")


def names(*kinds: GpuUse) -> set[str]:
    return {device.name for each in slices(*kinds) for device in each.spec.devices}


@pytest.mark.parametrize(
    ("kind", "published"),
    [(GpuUse.GPU, DeviceKind.GPU), (GpuUse.MIG, DeviceKind.MIG), (GpuUse.SHARE, DeviceKind.SHARE)],
)
def test_devices_have_the_names_that_the_plugin_gives_them(
    kind: GpuUse, published: DeviceKind, tmp_path: Path
) -> None:
    of_plugin = {
        each.name for each in of_kinds(simulated_devices("dgx-h100", tmp_path), {published})
    }
    with_media_engines = {name for name in of_plugin if "me-" in name}
    assert names(kind) == of_plugin - with_media_engines


@pytest.mark.parametrize("kinds", [(GpuUse.GPU,), _ALL])
def test_the_api_server_would_take_the_slices(kinds: tuple[GpuUse, ...]) -> None:
    assert [problem for each in slices(*kinds) for problem in problems(each)] == []


@pytest.mark.parametrize(
    ("gib", "profiles"),
    [
        (80, {"1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"}),
        (141, {"1g.18gb", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb"}),
        (40, {"1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"}),
    ],
)
def test_mig_profiles_are_named_as_nvidia_names_them(gib: int, profiles: set[str]) -> None:
    template = NodeTemplate("n", 1000, 2**30, gpus=1, gpu_memory=gib * 2**30, devices=(GpuUse.MIG,))
    found = [
        device.attributes["profile"]
        for each in template.slices("n")
        for device in each.spec.devices
    ]
    assert {each.value for each in found if isinstance(each, StringAttribute)} == profiles


def test_the_classes_are_those_that_ship() -> None:
    shipped = {
        body["metadata"]["name"]: decode(DeviceClass, body).spec.selectors
        for body in yaml.safe_load_all(_CLASSES.read_text())
    }
    for own in device_classes():
        assert shipped[own.metadata.name] == own.spec.selectors


def test_consecutive_nodes_share_a_domain() -> None:
    template = NodeTemplate("n", 1000, 2**30, count=5, domains={"rack": 2})
    racks = [node.node.labels["rack"] for node in template.nodes()]
    assert racks == ["n-0", "n-0", "n-1", "n-1", "n-2"]
