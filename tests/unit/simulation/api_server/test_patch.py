from typing import Any

import pytest

from simulation.api_server.patch import json_patch, merge

BODY: dict[str, Any] = {
    "spec": {
        "containers": [{"name": "a", "image": "one"}, {"name": "b", "image": "one"}],
        "tolerations": [{"key": "x"}],
    },
    "metadata": {"finalizers": ["x"], "labels": {"k": "v"}},
}


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [  # RFC 7386, appendix A
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"a": "foo"}, "bar", "bar"),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch_is_rfc_7386(target: Any, patch: Any, result: Any) -> None:
    assert merge(target, patch) == result


@pytest.mark.parametrize(
    ("target", "operations", "result"),
    [  # RFC 6902, appendix A
        ({"foo": "bar"}, [("add", "/baz", "qux")], {"baz": "qux", "foo": "bar"}),
        ({"foo": ["bar", "baz"]}, [("add", "/foo/1", "qux")], {"foo": ["bar", "qux", "baz"]}),
        ({"foo": ["bar"]}, [("add", "/foo/-", "qux")], {"foo": ["bar", "qux"]}),
        ({"baz": "qux", "foo": "bar"}, [("remove", "/baz", None)], {"foo": "bar"}),
        ({"foo": ["a", "b", "c"]}, [("remove", "/foo/1", None)], {"foo": ["a", "c"]}),
        ({"baz": "qux"}, [("replace", "/baz", "boo")], {"baz": "boo"}),
        ({"foo": ["a", "b"]}, [("replace", "/foo/1", "c")], {"foo": ["a", "c"]}),
        ({"foo": "bar"}, [("replace", "", {"a": 1})], {"a": 1}),
        ({"~/": 9}, [("test", "/~0~1", 9), ("add", "/b", 1)], {"~/": 9, "b": 1}),
    ],
)
def test_json_patch_is_rfc_6902(
    target: Any, operations: list[tuple[str, str, Any]], result: Any
) -> None:
    steps = [{"op": op, "path": path, "value": value} for op, path, value in operations]
    assert json_patch(target, steps) == result


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "add", "path": "/a/b", "value": 1},
        {"op": "add", "path": "/list/7", "value": 1},
        {"op": "remove", "path": "/a"},
        {"op": "test", "path": "/list/0", "value": "y"},
        {"op": "move", "from": "/a", "path": "/b"},
        {"op": "jump", "path": "/list"},
        {"op": "add", "path": "list", "value": 1},
    ],
)
def test_a_json_patch_that_does_not_fit_is_an_error(operation: dict[str, Any]) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - each says something else
        json_patch({"list": ["x"]}, [operation])


def test_no_patch_changes_what_it_is_given() -> None:
    before = repr(BODY)
    merge(BODY, {"spec": {"containers": None}})
    json_patch(BODY, [{"op": "remove", "path": "/spec/containers/0"}])
    assert repr(BODY) == before
