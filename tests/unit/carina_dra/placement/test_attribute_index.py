"""The index of attributes follows the slices, and keeps nothing of those that are gone."""

from hypothesis import given
from hypothesis import strategies as st

from carina_dra.allocator.usage import PoolId
from carina_dra.placement.attribute_index import AttributeIndex
from carina_dra.resource import ResourceSlice
from tests.samples.fleet import DRIVER, gpu, slices

_MODELS = ("H200", "B200", "L40S")
_ATTRIBUTE = f"{DRIVER}/model"


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
