"""What holds of any object of the API."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carina_dra.resource import DecodeError, Device, decode, encode
from carina_dra.resource.schema import Struct
from tests.samples.resources import EXAMPLES, KINDS, example
from tests.samples.strategies import resource_objects

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=3,
)


@pytest.mark.parametrize("kind", [*KINDS.values(), Device], ids=lambda kind: str(kind.__name__))
@given(st.data())
def test_what_is_written_reads_as_it_was(kind: type[Struct], data: st.DataObject) -> None:
    value = data.draw(resource_objects(kind))
    assert decode(kind, encode(value)) == value


@given(st.sampled_from(EXAMPLES), ANY_JSON, st.randoms(use_true_random=False))
def test_whatever_is_wrong_is_a_decode_error(name: str, wrong: Any, random: Any) -> None:
    body = example(name)
    target: Any = body
    while True:
        keys = list(target) if isinstance(target, dict) else list(range(len(target)))
        key = random.choice(keys)
        if not isinstance(target[key], dict | list) or not target[key] or random.random() < 0.1:
            break
        target = target[key]
    target[key] = wrong
    try:
        decode(KINDS[example(name)["kind"]], body)
    except DecodeError as error:
        assert str(error).startswith(example(name)["kind"])  # noqa: PT017 - it need not be wrong
