"""The work of a decision does not grow with what claims ask for, nor with what has been before."""

from unittest.mock import patch

from carina_dra.allocator.preference import Policy
from carina_dra.placement import attribute_index
from carina_dra.placement.placer import Placed, PlacementRequest, Placer
from tests.samples.fleet import CLASSES, DRIVER, claim, cluster, gpu

_NODES = {f"n{index:02}": [gpu("g0"), gpu("g1")] for index in range(20)}


def test_selector_with_many_values_looks_at_all_devices_for_few_of_them() -> None:
    """Each of the first looks indexes an attribute of all devices."""
    nodes = cluster(**_NODES)
    placer = Placer(nodes, Policy(), new_share_id=lambda: "share")
    terms = (f'device.attributes["{DRIVER}"].a{index} == "x"' for index in range(100))
    asked = PlacementRequest.of([claim(selector=" && ".join(terms))], CLASSES, nodes.features)
    with patch.object(attribute_index, "_count", wraps=attribute_index._count) as counted:
        assert not isinstance(placer.place(asked), Placed)
    assert counted.call_count == len(_NODES)
