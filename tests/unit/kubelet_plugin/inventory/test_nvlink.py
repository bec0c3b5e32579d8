"""Peers and domains, from what is at the other end of each GPU's links."""

from hypothesis import given
from hypothesis import strategies as st

from kubelet_plugin.inventory.gpu import NvLink, ObservedGpu
from kubelet_plugin.inventory.nvlink import Links, nvlinks
from tests.samples.gpus import LOST, gpu, observed


def address(minor: int) -> str:
    return gpu(minor).pci_bus_id


def bridged(*minors: int) -> Links:
    return Links(gpus=frozenset(address(minor) for minor in minors))


def switched(*switches: str, fabric: str | None = None) -> Links:
    return Links(switches=frozenset(switches), fabric=fabric)


def placed(
    links: dict[int, Links], unresponsive: list[ObservedGpu] | None = None
) -> dict[int, NvLink]:
    gpus = [gpu(minor) for minor in links]
    return nvlinks({address(minor): own for minor, own in links.items()}, gpus, unresponsive or [])


def test_a_gpu_without_links_has_no_place() -> None:
    assert placed({0: Links(), 1: Links()}) == {}


def test_gpus_with_a_bridge_are_peers_and_named_after_the_lowest_minor() -> None:
    domain = gpu(1).uuid
    assert placed({1: bridged(3), 3: bridged(1), 2: Links()}) == {
        1: NvLink(peers=(3,), domain=domain),
        3: NvLink(peers=(1,), domain=domain),
    }


def test_a_link_that_one_end_reports_counts_for_both() -> None:
    assert placed({0: bridged(1), 1: Links()})[1].peers == (0,)


def test_gpus_on_a_switch_are_peers() -> None:
    places = placed({0: switched("s1", "s2"), 1: switched("s2"), 2: switched("s3")})
    assert {minor: own.peers for minor, own in places.items()} == {0: (1,), 1: (0,), 2: ()}
    assert places[2].domain == gpu(2).uuid


def test_what_is_reached_in_two_hops_is_no_peer_and_of_the_same_domain() -> None:
    places = placed({0: bridged(1), 1: bridged(0, 2), 2: bridged(1)})
    assert places[0].peers == (1,)
    assert {own.domain for own in places.values()} == {gpu(0).uuid}


def test_a_fabric_names_the_domain() -> None:
    places = placed({0: switched("s", fabric="cluster.1"), 1: switched("s", fabric="cluster.1")})
    assert {own.domain for own in places.values()} == {"cluster.1"}


def test_a_link_to_a_gpu_that_is_not_ours_is_no_peer() -> None:
    links = {address(0): Links(gpus=frozenset({"0000:ff:00.0"}))}
    assert nvlinks(links, [gpu(0)], [])[0].peers == ()


def test_a_lost_gpu_stays_a_peer_and_keeps_its_domain_together() -> None:
    was = NvLink(peers=(1, 2), domain=gpu(0).uuid)
    places = placed({1: bridged(0), 2: bridged(0)}, unresponsive=[observed(0, LOST, nvlink=was)])
    assert places == {
        1: NvLink(peers=(0,), domain=gpu(0).uuid),
        2: NvLink(peers=(0,), domain=gpu(0).uuid),
    }


boards = st.dictionaries(
    st.integers(0, 7),
    st.builds(
        Links,
        gpus=st.frozensets(st.integers(0, 7).map(address), max_size=3),
        switches=st.frozensets(st.sampled_from(["s1", "s2"]), max_size=2),
    ),
)


@given(boards)
def test_peers_are_mutual_never_oneself_and_share_a_domain(board: dict[int, Links]) -> None:
    places = placed(board)
    for minor, own in places.items():
        assert minor not in own.peers
        assert own.peers == tuple(sorted(set(own.peers)))
        for peer in own.peers:
            assert minor in places[peer].peers
            assert places[peer].domain == own.domain
