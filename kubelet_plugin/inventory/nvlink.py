"""Derives each GPU's NVLink peers and domain from the links of all GPUs. No I/O.

Two GPUs are peers if a link connects them directly, or if both have a link to the same NVSwitch.
Domains are the connected components of this relation, which can span several hops (as in the cube
mesh of a DGX-1), unless a fabric manager reports a larger domain.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import permutations

from kubelet_plugin.inventory.gpu import Gpu, NvLink, ObservedGpu


@dataclass(frozen=True, slots=True)
class Links:
    """The active NVLinks of one GPU, by the kind of the remote device."""

    gpus: frozenset[str] = frozenset()
    """PCI addresses of GPUs."""
    switches: frozenset[str] = frozenset()
    """PCI addresses of NVSwitches; switches hidden from a virtual machine share one name."""
    unidentified: frozenset[str] = frozenset()
    """PCI addresses of devices whose kind an old driver does not report."""
    fabric: str | None = None
    """"<cluster UUID>.<clique id>", if a fabric manager has added the GPU to a fabric."""


def nvlinks(
    links: Mapping[str, Links], gpus: Iterable[Gpu], unresponsive: Collection[ObservedGpu]
) -> dict[int, NvLink]:
    """Returns the NVLink connections of each responding GPU that has a link, by minor number.

    `links` are keyed by the GPU's PCI address. A GPU in `unresponsive` reports no links; its last
    known peers still count, so that peers and domains do not change with each fault.
    """
    responsive = {gpu.minor: gpu for gpu in gpus}
    known = {observed.gpu.minor: observed.gpu for observed in unresponsive} | responsive
    minors = {gpu.pci_bus_id: gpu.minor for gpu in known.values()}
    reached: dict[int, set[int]] = {minor: set() for minor in known}
    for minor, peer in [*_edges(links, minors), *_remembered(unresponsive)]:
        if minor != peer and minor in reached and peer in reached:
            reached[minor].add(peer)
            reached[peer].add(minor)
    leaders = _leaders(reached)
    return {
        minor: NvLink(
            peers=tuple(sorted(reached[minor])),
            domain=links.get(gpu.pci_bus_id, Links()).fabric or known[leaders[minor]].uuid,
        )
        for minor, gpu in sorted(responsive.items())
        if reached[minor] or links.get(gpu.pci_bus_id, Links()) != Links()
    }


def _edges(links: Mapping[str, Links], minors: Mapping[str, int]) -> Iterator[tuple[int, int]]:
    """Returns the pairs of GPUs that a link or a switch connects."""
    attached: dict[str, list[int]] = {}
    for address, own in links.items():
        for peer in (own.gpus | own.unidentified) & minors.keys():
            yield minors[address], minors[peer]
        for switch in own.switches | (own.unidentified - minors.keys()):
            attached.setdefault(switch, []).append(minors[address])
    for group in attached.values():
        yield from permutations(group, 2)


def _remembered(unresponsive: Iterable[ObservedGpu]) -> Iterator[tuple[int, int]]:
    for observed in unresponsive:
        for minor in observed.state.nvlink.peers if observed.state.nvlink else ():
            yield observed.gpu.minor, minor


def _leaders(reached: Mapping[int, set[int]]) -> dict[int, int]:
    """Returns, for each GPU, the lowest minor number in its connected component."""
    leaders: dict[int, int] = {}
    for start in sorted(reached):
        frontier = [start]
        while frontier:
            minor = frontier.pop()
            if minor not in leaders:
                leaders[minor] = start
                frontier.extend(reached[minor])
    return leaders
