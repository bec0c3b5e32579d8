"""Equal parts of objects are read as one value, and others never are."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carina_dra.resource import (
    DecodeError,
    Device,
    IntAttribute,
    ResourceClaim,
    ResourceSlice,
    decode,
    encode,
)
from carina_dra.resource.sharing import shared
from carina_dra.resource.value_codec import Codec

_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 2)
    | st.sampled_from([-(2**63), 2**63 - 1, 2**70])
    | st.sampled_from([0.0, -0.0, 1.0, -1.0])
    | st.sampled_from(["", "1", "true", "null", "ä", "\ud800"]),
    lambda parts: (
        st.lists(parts, max_size=2)
        | st.dictionaries(st.sampled_from(["", "1", "a", "b"]), parts, max_size=2)
    ),
    max_leaves=4,
)


def _device(**members: Any) -> Device:
    return decode(Device, {"name": "gpu-0", **members})


def _consuming(amount: str) -> dict[str, Any]:
    return {"counterSet": "gpu-0", "counters": {"memory": {"value": amount}}}


def test_equal_attributes_of_two_devices_are_one_value() -> None:
    one = _device(attributes={"model": {"string": "H100"}})
    other = _device(attributes={"model": {"string": "H100"}})
    assert one.attributes["model"] is other.attributes["model"]


def test_equal_capacities_of_two_devices_are_one_value() -> None:
    one, other = (_device(capacity={"memory": {"value": "80Gi"}}) for _ in range(2))
    assert one.capacity["memory"] is other.capacity["memory"]


def test_equal_consumptions_of_two_devices_are_one_value() -> None:
    one, other = (_device(consumesCounters=[_consuming("1")]) for _ in range(2))
    assert one.consumes_counters[0] is other.consumes_counters[0]


def test_equal_counter_sets_of_two_slices_are_one_value() -> None:
    sets = [{"name": "gpu-0", "counters": {"memory": {"value": "1"}}}]
    pool = {"name": "pool", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "d", "pool": pool, "nodeName": "n", "sharedCounters": sets}
    one, other = (decode(ResourceSlice, {"spec": spec}) for _ in range(2))
    assert one.spec.shared_counters[0] is other.spec.shared_counters[0]


def test_claims_of_a_template_have_one_spec() -> None:
    asked = {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}
    one, other = (
        decode(
            ResourceClaim,
            {"metadata": {"name": name}, "spec": {"devices": {"requests": [asked]}}},
        )
        for name in ("one", "other")
    )
    assert one.spec is other.spec


def test_values_that_python_takes_for_equal_are_not_shared() -> None:
    assert _device(attributes={"a": {"int": 1}}).attributes["a"] == IntAttribute(1)
    with pytest.raises(DecodeError, match="is True, not an integer"):
        _device(attributes={"a": {"int": True}})


def test_quantities_of_different_texts_keep_their_texts() -> None:
    texts = ["1Gi", "1024Mi", "1073741824"]
    read = [_device(capacity={"memory": {"value": text}}) for text in texts]
    written = [encode(device)["capacity"]["memory"]["value"] for device in read]
    assert written == ["1Gi", "1Gi", "1073741824"]


def test_strict_reading_refuses_what_was_read_before() -> None:
    body = {"name": "gpu-0", "attributes": {"a": {"newer": 1}}}
    decode(Device, body)
    with pytest.raises(DecodeError, match="newer"):
        decode(Device, body, strict=True)


def test_an_error_names_its_field_each_time() -> None:
    for name in ("one", "other"):
        with pytest.raises(DecodeError) as caught:
            _device(attributes={name: {"string": 7}})
        assert f"attributes[{name}].string" in str(caught.value)


def test_a_body_that_is_changed_after_it_was_read_does_not_matter_to_the_next() -> None:
    body: dict[str, Any] = {"value": "7", "newer": {"by": ["one"]}}
    _device(capacity={"memory": body})
    body["newer"]["by"].append("two")
    after = _device(capacity={"memory": {"value": "7", "newer": {"by": ["one"]}}})
    assert after.capacity["memory"].unknown == {"newer": {"by": ["one"]}}


def test_a_long_part_is_read_each_time() -> None:
    long = {f"counter-{number}": {"value": "1"} for number in range(200)}
    one, other = (
        _device(consumesCounters=[{"counterSet": "gpu-0", "counters": long}]) for _ in range(2)
    )
    assert one == other
    assert one.consumes_counters[0] is not other.consumes_counters[0]


def test_a_part_of_many_empty_objects_is_read_each_time() -> None:
    """It is short, but takes much memory."""
    read = shared(Codec(lambda value: value, lambda value: value)).read
    many: list[Any] = [{}] * 500
    assert read(many) is many


def test_a_part_that_is_nested_too_deeply_to_compare_is_read() -> None:
    deep: list[Any] = []
    for _ in range(3000):
        deep = [deep]
    read = shared(Codec(lambda value: value, lambda value: value)).read
    assert read(deep) is deep


def test_what_is_not_json_is_read() -> None:
    read = shared(Codec(lambda value: value, lambda value: value)).read
    thing = object()
    assert read(thing) is thing


@given(st.lists(_JSON, max_size=8))
def test_what_was_read_before_does_not_matter(values: list[Any]) -> None:
    read = shared(Codec(repr, lambda value: value)).read
    assert [read(value) for value in values] == [repr(value) for value in values]
