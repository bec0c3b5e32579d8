"""What a reading of the node's GPUs gives, whatever the product and its driver. Read-only."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pynvml
import pytest

from carina_dra.nvidia.nvml_library import NvmlLibrary
from kubelet_plugin.host import HostPaths
from kubelet_plugin.inventory.gpu import Gpu, ObservedGpu
from kubelet_plugin.inventory.inventory import DriverReady
from kubelet_plugin.inventory.mig import MigUnsupported
from kubelet_plugin.nvml.reader import NvmlReader
from tests.contract.nvml.conftest import NodeMaker, reader_below


@pytest.fixture
def library(host: HostPaths) -> Iterator[NvmlLibrary]:
    opened = NvmlLibrary(host.gpu_addresses)
    yield opened
    opened.close()


@pytest.fixture
def reader(host: HostPaths, library: NvmlLibrary) -> NvmlReader:
    return NvmlReader(host, library)


def observed_by(reader: NvmlReader) -> tuple[ObservedGpu, ...]:
    inventory = reader.read()
    assert isinstance(inventory, DriverReady)
    assert inventory == DriverReady(inventory.gpus)  # every GPU is known
    assert not any(observed.state.problems for observed in inventory.gpus)
    return inventory.gpus


def gpus_of(reader: NvmlReader) -> tuple[Gpu, ...]:
    return tuple(observed.gpu for observed in observed_by(reader))


def test_every_gpu_that_nvml_counts_is_read_and_sorted_by_minor(reader: NvmlReader) -> None:
    gpus = gpus_of(reader)
    assert len(gpus) == pynvml.nvmlDeviceGetCount()
    assert [gpu.minor for gpu in gpus] == sorted({gpu.minor for gpu in gpus})


def test_identities_have_the_form_that_slices_and_cdi_need(reader: NvmlReader) -> None:
    for gpu in gpus_of(reader):
        assert re.fullmatch(r"GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", gpu.uuid)
        assert re.fullmatch(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.0", gpu.pci_bus_id)


def test_attributes_are_plausible_or_absent(reader: NvmlReader) -> None:
    for gpu in gpus_of(reader):
        assert gpu.product_name is None or 0 < len(gpu.product_name) <= 64
        assert gpu.architecture is None or re.fullmatch(r"[A-Z][A-Za-z ]+", gpu.architecture)
        assert gpu.cuda_compute_capability is None or gpu.cuda_compute_capability >= (3, 0)
        assert gpu.memory_bytes is None or gpu.memory_bytes > 2**30
        assert gpu.numa_node is None or gpu.numa_node >= 0
        assert gpu.pcie_root is None or re.fullmatch(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}", gpu.pcie_root)


def test_nvlink_peers_are_mutual_and_of_one_domain(reader: NvmlReader) -> None:
    links = {observed.gpu.minor: observed.state.nvlink for observed in observed_by(reader)}
    for minor, own in links.items():
        for peer_minor in own.peers if own else ():
            peer = links[peer_minor]
            assert peer is not None
            assert own is not None
            assert minor in peer.peers
            assert peer.domain == own.domain


def test_mig_layouts_are_complete(reader: NvmlReader) -> None:
    for gpu in gpus_of(reader):
        if isinstance(gpu.mig, MigUnsupported):
            continue
        layout = gpu.mig.layout
        assert layout.memory_slices > 0
        assert all(profile.placements for profile in layout.profiles)
        ids = [profile.id for profile in layout.profiles]
        assert ids == sorted(set(ids))
        assert len({profile.name for profile in layout.profiles}) == len(layout.profiles)


def test_reading_again_gives_the_same(reader: NvmlReader) -> None:
    first = reader.read()
    assert reader.read(first) == first


def test_a_closed_library_is_opened_again(library: NvmlLibrary, reader: NvmlReader) -> None:
    first = reader.read()
    library.close()
    assert reader.read(first) == first


def test_reading_again_neither_opens_nvml_nor_reads_mig_layouts(
    reader: NvmlReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = reader.read()
    for name in ("nvmlInit", "nvmlShutdown", "nvmlDeviceGetGpuInstanceProfileInfo"):
        monkeypatch.delattr(pynvml, name)
    assert reader.read(first) == first


@pytest.mark.parametrize("profile", ["dgx-a100", "dgx-h100", "hgx-h200-sxm", "b200"])
def test_a_driver_that_does_not_name_mig_profiles_costs_nothing(
    make_node: NodeMaker, profile: str
) -> None:
    node = make_node(profile)
    new = gpus_of(reader_below(node.root))
    node.remove_symbol("nvmlDeviceGetGpuInstanceProfileInfoV")
    assert gpus_of(reader_below(node.root)) == new


def test_an_h100(make_node: NodeMaker) -> None:
    """One product in full, so that a reader sees what there is."""
    node = make_node("dgx-h100", name="node-1")
    first = gpus_of(reader_below(node.root))[0]
    assert replace(first, mig=MigUnsupported()) == Gpu(
        minor=0,
        uuid="GPU-7da51c1e-b534-5977-99fe-8af18f6156a4",
        pci_bus_id="0000:1b:00.0",
        product_name="NVIDIA H100 80GB HBM3",
        brand="Nvidia",
        architecture="Hopper",
        cuda_compute_capability=(9, 0),
        memory_bytes=81559 * 2**20,
        driver_version="550.163.01",
        cuda_driver_version=(12, 4),
        addressing_mode=None,
        numa_node=0,
        pcie_root="pci0000:15",
        mig=MigUnsupported(),
        memory_reserved_bytes=600 * 2**20,
    )


@pytest.mark.parametrize(
    ("profile", "peers"),
    [
        ("dgx-a100", (1, 2, 3, 4, 5, 6, 7)),
        ("b200", (1, 2, 3, 4, 5, 6, 7)),
        ("hgx-h200-nvl", (1, 2, 3)),
        ("l40s", None),
    ],
)
def test_nvlink_peers_of_a_product(
    make_node: NodeMaker, profile: str, peers: tuple[int, ...] | None
) -> None:
    nvlink = observed_by(reader_below(make_node(profile).root))[0].state.nvlink
    assert (nvlink.peers if nvlink else None) == peers


def test_domains_of_bridges_differ(make_node: NodeMaker) -> None:
    gpus = observed_by(reader_below(make_node("hgx-h200-nvl").root))
    domains = [seen.state.nvlink.domain for seen in gpus if seen.state.nvlink]
    assert domains == [gpus[0].gpu.uuid] * 4 + [gpus[4].gpu.uuid] * 4


def test_a_fabric_that_spans_nodes_names_the_domain(make_node: NodeMaker) -> None:
    gpus = observed_by(reader_below(make_node("b200").root))
    assert {seen.state.nvlink.domain for seen in gpus if seen.state.nvlink} == {
        "6a1c1b4e-0b1f-4c62-9b3e-3f3d0e0a7d51.7"
    }


def test_a_fabric_without_a_cluster_uuid_does_not_name_the_domain(
    make_node: NodeMaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a single HGX board; else the GPUs of all such nodes would have the same domain."""

    def joined_without_cluster(_handle: object, info: Any) -> int:
        info._obj.state, info._obj.status = 3, pynvml.NVML_SUCCESS
        return pynvml.NVML_SUCCESS  # type: ignore[no-any-return]

    node = make_node("dgx-h100")
    monkeypatch.setattr(pynvml, "nvmlDeviceGetGpuFabricInfoV", joined_without_cluster)
    gpus = observed_by(reader_below(node.root))
    domains = {seen.state.nvlink.domain for seen in gpus if seen.state.nvlink}
    assert domains == {gpus[0].gpu.uuid}
