"""Which GPUs reach which over NVLink: from each GPU's links to its peers and its domain.

Pure. Two GPUs are peers when a link joins them directly or both have a link to the same NVSwitch.
Domains are the connected components of that relation, several hops included (the cube mesh of a
DGX-1), unless a fabric manager has named a larger one.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import permutations

from kubelet_plugin.inventory.gpu import Gpu, NvLink, ObservedGpu


@dataclass(frozen=True, slots=True)
class Links:
    """The active NVLinks of one GPU, by what is at their other end."""

    gpus: frozenset[str] = frozenset()
    """PCI addresses of GPUs."""
    switches: frozenset[str] = frozenset()
    """PCI addresses of NVSwitches; those that a virtual machine cannot see share one name."""
    untold: frozenset[str] = frozenset()
    """PCI addresses that an old driver calls neither."""
    fabric: str | None = None
    """"<cluster UUID>.<clique id>", where a fabric manager has joined the GPU to a fabric."""


def nvlinks(
    links: Mapping[str, Links], gpus: Iterable[Gpu], silent: Collection[ObservedGpu]
) -> dict[int, NvLink]:
    """Gives the NVLink connections of every GPU that has a link, by minor number.

    `links` are keyed by the GPU's PCI address. A GPU that does not answer reports no links; the
    peers it had keep its neighbours together, so that domains do not change their names.
    """
    answering = {gpu.minor: gpu for gpu in gpus}
    known = {observed.gpu.minor: observed.gpu for observed in silent} | answering
    minors = {gpu.pci_bus_id: gpu.minor for gpu in known.values()}
    reached: dict[int, set[int]] = {minor: set() for minor in known}
    for one, other in [*_edges(links, minors), *_remembered(silent)]:
        if one != other and one in reached and other in reached:
            reached[one].add(other)
            reached[other].add(one)
    leaders = _leaders(reached)
    return {
        minor: NvLink(
            peers=tuple(sorted(reached[minor] & answering.keys())),
            domain=links.get(gpu.pci_bus_id, Links()).fabric or known[leaders[minor]].uuid,
        )
        for minor, gpu in sorted(answering.items())
        if reached[minor] or links.get(gpu.pci_bus_id, Links()) != Links()
    }


def _edges(links: Mapping[str, Links], minors: Mapping[str, int]) -> Iterator[tuple[int, int]]:
    """Pairs of GPUs joined by a link or by a switch."""
    attached: dict[str, list[int]] = {}
    for address, own in links.items():
        for peer in (own.gpus | own.untold) & minors.keys():
            yield minors[address], minors[peer]
        for switch in own.switches | (own.untold - minors.keys()):
            attached.setdefault(switch, []).append(minors[address])
    for group in attached.values():
        yield from permutations(group, 2)


def _remembered(silent: Iterable[ObservedGpu]) -> Iterator[tuple[int, int]]:
    for observed in silent:
        for minor in observed.state.nvlink.peers if observed.state.nvlink else ():
            yield observed.gpu.minor, minor


def _leaders(reached: Mapping[int, set[int]]) -> dict[int, int]:
    """For each GPU the lowest minor number of its connected component."""
    leaders: dict[int, int] = {}
    for start in sorted(reached):
        frontier = [start]
        while frontier:
            minor = frontier.pop()
            if minor not in leaders:
                leaders[minor] = start
                frontier.extend(reached[minor])
    return leaders
