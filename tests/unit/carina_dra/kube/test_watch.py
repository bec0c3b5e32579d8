from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carina_dra.kube.errors import ApiOperation, ServerError, VersionGone
from carina_dra.kube.transport import split_lines
from carina_dra.kube.watch import Added, Bookmark, Deleted, Modified, WatchEvent, parse_event

WATCH = ApiOperation("watch", "nodes")
BODY = {"metadata": {"name": "n1", "resourceVersion": "7"}}


@pytest.mark.parametrize(
    ("kind", "event"),
    [
        (b"ADDED", Added(BODY)),
        (b"MODIFIED", Modified(BODY)),
        (b"DELETED", Deleted(BODY)),
        (b"BOOKMARK", Bookmark("7")),
    ],
)
def test_a_line_is_an_event(kind: bytes, event: WatchEvent) -> None:
    body = b'{"metadata":{"name":"n1","resourceVersion":"7"}}'
    line = b'{"type":"' + kind + b'","object":' + body + b"}"
    assert parse_event(WATCH, line) == event


def test_an_error_is_raised() -> None:
    line = b'{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old"}}'
    with pytest.raises(VersionGone, match="watch nodes: too old"):
        parse_event(WATCH, line)


@pytest.mark.parametrize(
    "line", [b"", b"{", b"[]", b"{}", b'{"type":"BOOKMARK","object":{}}', b"[" * 9999]
)
def test_anything_else_is_the_servers_fault(line: bytes) -> None:
    with pytest.raises(ServerError, match="not a watch event"):
        parse_event(WATCH, line)


def test_an_unknown_type_of_event_is_named() -> None:
    with pytest.raises(ServerError, match="unknown type 'SURPRISE'"):
        parse_event(WATCH, b'{"type":"SURPRISE","object":{}}')


@given(st.binary(max_size=200), st.lists(st.integers(0, 200)))
def test_lines_do_not_depend_on_how_they_were_cut_into_chunks(
    content: bytes, cuts: list[int]
) -> None:
    ends = [0, *sorted(cuts), len(content)]
    chunks = [content[start:end] for start, end in pairwise(ends)]
    assert list(split_lines(iter(chunks))) == content.split(b"\n")[:-1]
