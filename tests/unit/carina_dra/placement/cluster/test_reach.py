"""The pools that may reach a node are too many rather than too few."""

from collections.abc import Mapping
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from carina_dra.allocator.errors import AllocationError
from carina_dra.allocator.node import Node, reaches
from carina_dra.allocator.usage import PoolId
from carina_dra.placement.cluster.reach import Reach
from carina_dra.resource import PerDevice, ResourceSliceSpec, decode
from tests.samples.fleet import DRIVER, with_zone

_LABELS = ("zone", "rack")
_VALUES = ("a", "b", "1")
_NODES = ("n1", "n2", "n3")

_requirements = st.one_of(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from(_LABELS),
            "operator": st.sampled_from(["In", "NotIn"]),
            "values": st.lists(st.sampled_from(_VALUES), min_size=1, max_size=2, unique=True),
        }
    ),
    st.fixed_dictionaries(
        {
            "key": st.sampled_from(_LABELS),
            "operator": st.sampled_from(["Exists", "DoesNotExist"]),
        }
    ),
    st.fixed_dictionaries(
        {
            "key": st.sampled_from(_LABELS),
            "operator": st.sampled_from(["Gt", "Lt"]),
            "values": st.sampled_from([["0"], ["x"]]),
        }
    ),
)
_fields = st.fixed_dictionaries(
    {
        "key": st.just("metadata.name"),
        "operator": st.sampled_from(["In", "NotIn"]),
        "values": st.sampled_from([[name] for name in _NODES]),
    }
)
_terms = st.fixed_dictionaries(
    {},
    optional={
        "matchExpressions": st.lists(_requirements, max_size=2),
        "matchFields": st.lists(_fields, max_size=1),
    },
)
_selectors = st.fixed_dictionaries({"nodeSelectorTerms": st.lists(_terms, max_size=2)})
_places = st.one_of(
    st.fixed_dictionaries({"nodeName": st.sampled_from(_NODES)}),
    st.just({"allNodes": True}),
    st.fixed_dictionaries({"nodeSelector": _selectors}),
)
_specs = st.one_of(
    _places,
    st.lists(_places, max_size=3).map(
        lambda places: {
            "perDeviceNodeSelection": True,
            "devices": [{"name": f"d{n}", **place} for n, place in enumerate(places)],
        }
    ),
)
_pools = st.dictionaries(st.sampled_from("pqr"), st.lists(_specs, max_size=2), max_size=3)
_nodes = st.dictionaries(
    st.sampled_from(_NODES),
    st.dictionaries(st.sampled_from(_LABELS), st.sampled_from(_VALUES)),
)


def _spec(places: Mapping[str, object]) -> ResourceSliceSpec:
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    return decode(ResourceSliceSpec, {"driver": DRIVER, "pool": pool, **places})


def _id(name: str) -> PoolId:
    return PoolId(DRIVER, name)


def _reaches(spec: ResourceSliceSpec, node: Node) -> bool:
    """Whether the slice concerns the node: it reaches it, or is an error of it."""
    nodes = spec.nodes
    places = [one.nodes for one in spec.devices] if isinstance(nodes, PerDevice) else [nodes]
    try:
        return any(reaches(place, node) for place in places)
    except AllocationError:
        return True


class _Followed:
    """A reach that follows changes of nodes and pools."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.pools: dict[str, list[ResourceSliceSpec]] = {}
        self.reach = Reach(self.nodes)

    def put_node(self, name: str, labels: Mapping[str, str] | None) -> None:
        before = self.nodes.pop(name, None)
        if before is not None:
            self.reach.remove_node(before)
        if labels is not None:
            self.nodes[name] = Node(name, labels)
            self.reach.put_node(self.nodes[name])

    def put_pool(self, name: str, specs: list[Mapping[str, object]]) -> None:
        self.pools[name] = [_spec(one) for one in specs]
        self.reach.put_pool(_id(name), self.pools[name])


@settings(max_examples=150)
@given(
    st.lists(st.tuples(_pools, _nodes), min_size=1, max_size=3), st.randoms(use_true_random=False)
)
def test_every_pool_that_reaches_a_node_is_found(
    steps: list[tuple[dict[str, list[Mapping[str, object]]], dict[str, dict[str, str]]]],
    random: Random,
) -> None:
    followed = _Followed()
    for pools, nodes in steps:
        changes = [
            *((followed.put_pool, name, pools.get(name, [])) for name in "pqr"),
            *((followed.put_node, name, nodes.get(name)) for name in _NODES),
        ]
        random.shuffle(changes)
        for change, name, value in changes:
            change(name, value)  # type: ignore[operator]
    reach = followed.reach
    for node in followed.nodes.values():
        for name, specs in followed.pools.items():
            reached = reach.nodes_of(_id(name))
            is_listed = reached is None or node.name in reached
            assert is_listed == (_id(name) in reach.pools_of(node))
            if any(_reaches(spec, node) for spec in specs):
                assert is_listed


def _reach(*nodes: Node, **pools: Mapping[str, object]) -> Reach:
    followed = _Followed()
    for node in nodes:
        followed.put_node(node.name, node.labels)
    for name, places in pools.items():
        followed.put_pool(name, [places])
    return followed.reach


def test_pool_of_a_label_reaches_only_nodes_with_the_label() -> None:
    one, other = Node("n1", {"zone": "a"}), Node("n2", {"zone": "b"})
    reach = _reach(one, other, p={"nodeSelector": with_zone("a")})
    assert reach.nodes_of(_id("p")) == {"n1"}
    assert (reach.pools_of(one), reach.pools_of(other)) == ({_id("p")}, set())


def test_selector_with_an_invalid_field_concerns_nodes_without_its_label_too() -> None:
    """It is an error of each node."""
    (term,) = with_zone("a")["nodeSelectorTerms"]
    field = {"key": "metadata.name", "operator": "In", "values": ["n1", "n2"]}
    selector = {"nodeSelectorTerms": [{**term, "matchFields": [field]}]}
    reach = _reach(Node("n1", {"zone": "b"}), p={"nodeSelector": selector})
    assert reach.nodes_of(_id("p")) is None


def test_selector_with_an_invalid_number_concerns_nodes_without_its_label_too() -> None:
    (term,) = with_zone("a")["nodeSelectorTerms"]
    number = {"key": "rack", "operator": "Gt", "values": ["x"]}
    expressions = [*term["matchExpressions"], number]
    selector = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
    reach = _reach(Node("n1", {"zone": "b"}), p={"nodeSelector": selector})
    assert reach.nodes_of(_id("p")) is None


def test_pool_of_a_node_reaches_only_that_node() -> None:
    one, other = Node("n1"), Node("n2")
    reach = _reach(one, other, p={"nodeName": "n1"})
    assert reach.nodes_of(_id("p")) == {"n1"}
    assert list(reach.pools_naming("n1")) == list(reach.pools_of(one)) == [_id("p")]
    assert list(reach.pools_naming("n2")) == list(reach.pools_of(other)) == []


def test_pool_of_all_nodes_names_none() -> None:
    reach = _reach(Node("n1"), p={"allNodes": True})
    assert reach.nodes_of(_id("p")) is None
    assert list(reach.named_by(_id("p"))) == []


def test_labels_are_indexed_only_while_a_pool_asks_for_their_key() -> None:
    followed = _Followed()
    followed.put_node("n1", {"zone": "a", "rack": "1"})
    assert followed.reach._labelled == {}
    followed.put_pool("p", [{"nodeSelector": with_zone("a")}])
    assert followed.reach._labelled == {("zone", "a"): {"n1"}}
    followed.put_pool("p", [])
    assert followed.reach._labelled == {}
