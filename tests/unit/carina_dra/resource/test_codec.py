"""One codec a type, for both directions."""

from typing import Any

import pytest

from carina_dra.resource import IntAttribute, ResourceSlice
from carina_dra.resource.codec import codec
from carina_dra.resource.errors import BadValueError
from tests.samples.resources import example


def test_a_codec_is_built_once_per_type() -> None:
    assert codec(ResourceSlice) is codec(ResourceSlice)


def test_a_codec_reads_what_it_writes() -> None:
    body = example("slice-of-gpus")
    slices = codec(tuple[ResourceSlice, ...])
    assert slices.write(slices.read([body, body])) == [body, body]


def test_an_error_grows_its_path_on_the_way_up() -> None:
    body = example("slice-of-gpus")
    body["spec"]["driver"] = 7
    with pytest.raises(BadValueError) as caught:
        codec(tuple[ResourceSlice, ...]).read([example("slice-of-gpus"), body])
    assert caught.value.path == "[1].spec.driver"


@pytest.mark.parametrize("kind", [bytes, object, IntAttribute], ids=lambda kind: str(kind.__name__))
def test_what_is_no_json_by_itself_has_no_codec(kind: Any) -> None:
    with pytest.raises(TypeError, match="has no codec"):
        codec(kind)
