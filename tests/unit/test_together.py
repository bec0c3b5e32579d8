"""Processes that do one run together take each test once, and a file whole."""

from itertools import chain, zip_longest
from pathlib import Path

import pytest

from tests import together


def test_each_test_is_taken_once_and_a_file_by_one_process(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    some = request.session.items[:1000]
    items = some[::2] + some[1::2]  # the tests of a file are apart
    pairs = list(zip_longest(*(together._taken(items, tmp_path) for _ in range(2))))
    taken = [[item for item in column if item is not None] for column in zip(*pairs, strict=True)]
    assert sorted(map(id, chain(*taken))) == sorted(map(id, items))
    files = [{together._part(item) for item in some} for some in taken]
    assert not set.intersection(*files)
