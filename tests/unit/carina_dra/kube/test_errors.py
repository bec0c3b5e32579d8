import json
from typing import Any

import pytest

from carina_dra.kube.api_resource import NODES, RESOURCE_CLAIMS, RESOURCE_SLICES
from carina_dra.kube.errors import (
    AlreadyExists,
    ApiError,
    ApiOperation,
    BadRequest,
    Cause,
    Conflict,
    Forbidden,
    Invalid,
    NamespaceNotFound,
    NotFound,
    PathNotFound,
    ServerError,
    TooManyRequests,
    Unauthorized,
    Unavailable,
    VersionGone,
    from_response,
    from_status,
)

GET = ApiOperation.on("get", RESOURCE_CLAIMS, "team", "claim")


def error_of(code: int, reason: str = "", retry_after: str = "", **details: Any) -> ApiError:
    status = {
        "kind": "Status",
        "code": code,
        "reason": reason,
        "message": "it is so",
        "details": details,
    }
    return from_response(GET, code, json.dumps(status).encode(), retry_after)


@pytest.mark.parametrize(
    ("code", "reason", "kind", "retriable"),
    [
        (400, "BadRequest", BadRequest, False),
        (401, "Unauthorized", Unauthorized, False),
        (403, "Forbidden", Forbidden, False),
        (405, "MethodNotAllowed", BadRequest, False),
        (409, "AlreadyExists", AlreadyExists, False),
        (409, "Conflict", Conflict, False),
        (410, "Expired", VersionGone, False),
        (410, "Gone", VersionGone, False),
        (415, "UnsupportedMediaType", BadRequest, False),
        (422, "Invalid", Invalid, False),
        (429, "TooManyRequests", TooManyRequests, True),
        (500, "InternalError", ServerError, True),
        (503, "ServiceUnavailable", Unavailable, True),
        (504, "Timeout", Unavailable, True),
    ],
)
def test_every_status_has_its_type(
    code: int, reason: str, kind: type[ApiError], retriable: bool
) -> None:
    error = error_of(code, reason)
    assert type(error) is kind
    assert error.retriable is retriable
    assert str(error) == "get resourceclaims.resource.k8s.io team/claim: it is so"


def test_an_object_that_is_too_large_to_be_stored_is_invalid() -> None:
    error = from_status(GET, {"code": 500, "message": "etcdserver: request is too large"})
    assert type(error) is Invalid
    assert not error.retriable


def test_what_is_invalid_names_the_fields() -> None:
    causes = [{"reason": "FieldValueRequired", "field": "spec.driver", "message": "is required"}]
    error = error_of(422, "Invalid", causes=causes)
    assert isinstance(error, Invalid)
    assert error.causes == (Cause("spec.driver", "is required"),)


CLAIM = {"group": "resource.k8s.io", "kind": "resourceclaims", "name": "claim"}
"""What the API server's Status says of the object of GET."""


def test_an_object_is_not_found_where_the_status_names_it() -> None:
    error = error_of(404, "NotFound", **CLAIM)
    assert type(error) is NotFound
    assert not error.retriable
    assert str(error) == "get resourceclaims.resource.k8s.io team/claim: it is so"


def test_an_object_of_the_core_group_has_no_group_in_its_status() -> None:
    status = {
        "kind": "Status",
        "reason": "NotFound",
        "message": 'nodes "n1" not found',
        "details": {"kind": "nodes", "name": "n1"},
    }
    error = from_response(
        ApiOperation.on("get", NODES, name="n1"), 404, json.dumps(status).encode(), ""
    )
    assert type(error) is NotFound


@pytest.mark.parametrize(
    ("reason", "details"),
    [
        ("NotFound", {}),  # a version or resource that is not served
        ("NotFound", CLAIM | {"name": "another"}),
        ("NotFound", CLAIM | {"kind": "resourceclaimtemplates"}),
        ("NotFound", CLAIM | {"group": "example.com"}),
        ("NotFound", {"kind": "resourceclaims", "name": "claim"}),  # of the core group
        ("NotFound", {"group": "resource.k8s.io", "kind": "resourceclaims"}),
        ("NotFound", {"kind": "namespaces", "name": "another"}),
        ("Expired", CLAIM),
        ("", CLAIM),
    ],
)
def test_a_404_that_does_not_name_the_object_says_nothing_of_it(
    reason: str, details: dict[str, str]
) -> None:
    error = error_of(404, reason, **details)
    assert type(error) is PathNotFound
    assert error.retriable


@pytest.mark.parametrize(
    "content",
    [
        b"404 page not found\n",
        b"<html><title>404 Not Found</title></html>",
        b"",
        json.dumps({"kind": "Error", "reason": "NotFound", "details": CLAIM}).encode(),
    ],
)
def test_a_404_that_is_no_status_says_nothing_of_the_object(content: bytes) -> None:
    error = from_response(GET, 404, content, "")
    assert type(error) is PathNotFound
    assert error.retriable


def test_a_404_of_the_path_says_what_may_be_wrong() -> None:
    error = from_response(GET, 404, b"404 page not found\n", "")
    assert str(error) == (
        "get resourceclaims.resource.k8s.io team/claim: 404 page not found (HTTP status 404 for "
        "the path, not for an object: check that the API server serves this version of the "
        "resource, and that no proxy answers in its place)"
    )


@pytest.mark.parametrize("verb", ["list", "watch", "create"])
def test_what_is_about_no_object_cannot_miss_one(verb: str) -> None:
    operation = ApiOperation.on(verb, RESOURCE_CLAIMS, "team")
    status = {"kind": "Status", "reason": "NotFound", "details": CLAIM | {"name": ""}}
    assert type(from_response(operation, 404, json.dumps(status).encode(), "")) is PathNotFound


def test_a_namespace_that_does_not_exist_is_not_the_object() -> None:
    error = error_of(404, "NotFound", kind="namespaces", name="team")
    assert type(error) is NamespaceNotFound
    assert not error.retriable


@pytest.mark.parametrize("details", ["text", ["list"], {"causes": "none"}, {"causes": [7]}])
def test_a_status_of_another_shape_is_read_as_far_as_it_goes(details: object) -> None:
    status = {"kind": "Status", "reason": "NotFound", "details": details}
    assert type(from_response(GET, 404, json.dumps(status).encode(), "")) is PathNotFound


@pytest.mark.parametrize(
    ("header", "details", "seconds"),
    [
        ("7", {}, 7.0),
        ("", {"retryAfterSeconds": 3}, 3.0),
        ("", {}, 1.0),
        ("", {"retryAfterSeconds": [3]}, 1.0),
        ("-1", {}, 0.0),
        ("inf", {}, 300.0),
        ("Fri, 20 Nov 2026 22:00:00 GMT", {}, 1.0),
    ],
)
def test_a_server_that_asks_for_patience_says_how_much(
    header: str, details: dict[str, Any], seconds: float
) -> None:
    error = error_of(429, "TooManyRequests", header, **details)
    assert isinstance(error, TooManyRequests)
    assert error.retry_after == seconds


def test_a_version_from_the_future_is_gone_too() -> None:
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    assert isinstance(error_of(504, "Timeout", causes=causes), VersionGone)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<html>bad gateway</html>", "<html>bad gateway</html>"),
        (b"", "HTTP status 502 with an empty body"),
        (b'["no", "status"]', '["no", "status"]'),
        (b"[" * 9999, "[" * 1000),
    ],
)
def test_what_is_no_status_is_quoted(content: bytes, message: str) -> None:
    error = from_response(GET, 502, content, "")
    assert isinstance(error, ServerError)
    assert error.message == message


@pytest.mark.parametrize(
    ("operation", "text"),
    [
        (ApiOperation.on("list", RESOURCE_SLICES), "list resourceslices.resource.k8s.io"),
        (
            ApiOperation.on("list", RESOURCE_CLAIMS, "team"),
            "list resourceclaims.resource.k8s.io in team",
        ),
        (ApiOperation.on("get", NODES, name="n1"), "get nodes n1"),
        (GET, "get resourceclaims.resource.k8s.io team/claim"),
    ],
)
def test_an_operation_reads_as_what_was_tried(operation: ApiOperation, text: str) -> None:
    assert str(operation) == text
