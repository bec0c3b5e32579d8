"""The index of attributes follows the slices, and keeps nothing of those that are gone."""

from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from carina_dra.allocator.usage import PoolId
from carina_dra.placement.cluster import attribute_index
from carina_dra.placement.cluster.attribute_index import AttributeIndex
from carina_dra.resource import ResourceSlice
from tests.samples.fleet import DRIVER, gpu, slices

_MODELS = ("H200", "B200", "L40S")
_ATTRIBUTE = f"{DRIVER}/model"
_INDEXED = 8
"""The number of attributes that are indexed."""


def published(pool: str, *models: str) -> ResourceSlice:
    """A pool of one slice with GPUs of these models."""
    devices = [gpu(f"g{index}", model=model) for index, model in enumerate(models)]
    return slices(pool, {"devices": devices})[0]


def found(index: AttributeIndex) -> dict[str, set[PoolId]]:
    """The pools by model."""
    return {model: set(index.pools_with(_ATTRIBUTE, model)) for model in _MODELS}


def test_pools_are_found_by_the_value_of_an_attribute() -> None:
    index = AttributeIndex({"a": published("a", "H200", "B200"), "b": published("b", "H200")})
    pools = {name: PoolId(DRIVER, name) for name in "ab"}
    assert found(index) == {"H200": set(pools.values()), "B200": {pools["a"]}, "L40S": set()}


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.lists(st.sampled_from(_MODELS), max_size=3)),
        max_size=8,
    )
)
def test_index_that_follows_slices_is_that_of_a_new_one(
    history: list[tuple[str, list[str]]],
) -> None:
    known: dict[str, ResourceSlice] = {}
    index = AttributeIndex(known)
    found(index)
    for pool, models in history:
        before = known.pop(pool, None)
        if before is not None:
            index.remove(before.spec)
        if models:
            known[pool] = published(pool, *models)
            index.put(known[pool].spec)
        assert found(index) == found(AttributeIndex(known))


def _with_serials(pool: str, *serials: str) -> ResourceSlice:
    devices = [
        {"name": f"g{n}", "attributes": {"serial": {"string": serial}, "model": {"string": "H200"}}}
        for n, serial in enumerate(serials)
    ]
    return slices(pool, {"devices": devices})[0]


def test_fewest_pools_are_those_of_the_rarest_value() -> None:
    index = AttributeIndex({name: _with_serials(name, f"{name}0", f"{name}1") for name in "ab"})
    both = [PoolId(DRIVER, "a"), PoolId(DRIVER, "b")]
    model, serial = (_ATTRIBUTE, "H200"), (f"{DRIVER}/serial", "b1")
    for values in ([model, serial], [serial, model]):
        assert list(index.fewest_pools(values) or ()) == both[1:]
    assert list(index.fewest_pools([model]) or ()) == both
    assert index.fewest_pools([]) is None


def test_value_that_no_device_has_is_of_no_pool() -> None:
    index = AttributeIndex({name: _with_serials(name, f"{name}0") for name in "ab"})
    fewest = index.fewest_pools([(_ATTRIBUTE, "H200"), (f"{DRIVER}/serial", "unknown")])
    assert fewest is not None
    assert not fewest


def test_attributes_asked_for_last_are_indexed() -> None:
    index = AttributeIndex({"a": _with_serials("a", "a0")})
    names = [f"{DRIVER}/a{number}" for number in range(_INDEXED + 1)]
    for name in (*names[:-1], names[0], names[-1]):
        index.pools_with(name, "x")
    with patch.object(attribute_index, "_count", wraps=attribute_index._count) as looks:
        for name in (*names[2:], names[0]):
            index.pools_with(name, "x")
        assert looks.call_count == 0
        index.pools_with(names[1], "x")
        assert looks.call_count == 1


def test_indexed_attributes_are_asked_for_before_others() -> None:
    index = AttributeIndex({name: _with_serials(name, f"{name}0") for name in "ab"})
    serial = (f"{DRIVER}/serial", "a0")
    index.pools_with(*serial)
    with patch.object(attribute_index, "_count", wraps=attribute_index._count) as looks:
        assert list(index.fewest_pools([(_ATTRIBUTE, "H200"), serial]) or ()) == [
            PoolId(DRIVER, "a")
        ]
    assert looks.call_count == 0


def test_nothing_is_kept_of_values_that_are_gone() -> None:
    known = {"a": _with_serials("a", "a0", "a1")}
    index = AttributeIndex(known)
    index.pools_with(f"{DRIVER}/serial", "a0")
    index.remove(known.pop("a").spec)
    assert list(index._pools.values()) == [{}]


def test_attribute_that_is_no_string_is_not_indexed() -> None:
    number = {"name": "g0", "attributes": {"model": {"version": "1.0.0"}}}
    index = AttributeIndex({"a": slices("a", {"devices": [number]})[0]})
    assert not index.pools_with(_ATTRIBUTE, "1.0.0")
