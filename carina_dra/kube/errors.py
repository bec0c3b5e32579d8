"""What can go wrong between us and the API server, as types.

Every failure is one of these, translated once, where the response is read: from the Status object
that the server sends, or from the transport. Each names what was tried, on what.
https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/status/
"""

# ruff: noqa: N818 - the classes are named after the reasons in Status

import json
from dataclasses import dataclass
from typing import ClassVar

from carina_dra.kube.api_resource import ApiResource
from carina_dra.kube.body import Body, ObjectKey


@dataclass(frozen=True, slots=True)
class ApiOperation:
    """What was tried: a verb, on a resource, perhaps on one object of it."""

    verb: str
    resource: str
    key: ObjectKey | None = None

    @classmethod
    def on(
        cls, verb: str, resource: ApiResource, namespace: str | None = None, name: str = ""
    ) -> "ApiOperation":
        """An operation on one object, or (no name) on all of a namespace or of the cluster."""
        key = ObjectKey(namespace or "", name) if name or namespace else None
        return cls(verb, resource.qualified_name, key)

    def __str__(self) -> str:
        match self.key:
            case None:
                return f"{self.verb} {self.resource}"
            case ObjectKey(namespace, ""):
                return f"{self.verb} {self.resource} in {namespace}"
            case key:
                return f"{self.verb} {self.resource} {key}"


@dataclass(frozen=True, slots=True)
class Cause:
    """One thing the API server finds wrong with an object: the field, and what about it."""

    field: str
    message: str


class ApiError(Exception):
    """An operation on the Kubernetes API failed. Only its subclasses are raised."""

    retriable: ClassVar[bool] = False
    """Whether the same request, unchanged, may succeed later."""

    def __init__(self, operation: ApiOperation, message: str) -> None:
        super().__init__(f"{operation}: {message}")
        self.operation = operation
        self.message = message


class NotFound(ApiError):
    """The object does not exist: the API server's Status names the very object."""


class NamespaceNotFound(ApiError):
    """The namespace that an object was to be created in does not exist."""


class PathNotFound(ApiError):
    """HTTP status 404 that says nothing about the object, which may well exist.

    The API server does not serve the resource in this version, or something else answered, such as
    a load balancer.
    """

    retriable = True


class AlreadyExists(ApiError):
    """An object of that name exists."""


class Conflict(ApiError):
    """The object has changed, or is another than was meant: read it again, then decide anew."""


class Gone(ApiError):
    """The resource version or the continue token is one the server does not have: list again."""


class Invalid(ApiError):
    """The API server refuses the object as it is; `causes` name the fields."""

    def __init__(self, operation: ApiOperation, message: str, causes: tuple[Cause, ...]) -> None:
        super().__init__(operation, message)
        self.causes = causes


class Forbidden(ApiError):
    """Not permitted, by RBAC or an admission policy."""


class Unauthorized(ApiError):
    """The API server does not know who we are."""


class BadRequest(ApiError):
    """The request itself makes no sense to the API server (any other 4xx status)."""


class TooManyRequests(ApiError):
    """The API server asks for patience; `retry_after` is how long, in seconds."""

    retriable = True

    def __init__(self, operation: ApiOperation, message: str, retry_after: float) -> None:
        super().__init__(operation, message)
        self.retry_after = retry_after


class ServerError(ApiError):
    """The API server failed (status 5xx), or answered something that is no answer."""

    retriable = True


class Unreachable(ApiError):
    """No answer: connection refused or lost, TLS trouble, or timed out.

    Whether a write has happened is not known.
    """

    retriable = True


def from_response(operation: ApiOperation, code: int, content: bytes, retry_after: str) -> ApiError:
    """The error that an HTTP response with status `code` (400 or more) stands for.

    retry_after: the header of that name, in seconds, or empty.
    """
    try:
        status = json.loads(content)
    except ValueError:
        status = None
    if not isinstance(status, dict) or status.get("kind") != "Status":
        text = content.decode(errors="replace").strip()
        status = {"message": text[:1000] or f"HTTP status {code} without a word"}
    return from_status(operation, {**status, "code": code}, retry_after)


def from_status(operation: ApiOperation, status: Body, retry_after: str = "") -> ApiError:
    """The error that a Status object stands for."""
    code = int(status.get("code") or 500)
    reason = status.get("reason") or ""
    details = _object(status.get("details"))
    message = status.get("message") or reason or f"HTTP status {code}"
    causes = [_object(cause) for cause in _list(details.get("causes"))]
    if any(cause.get("reason") == "ResourceVersionTooLarge" for cause in causes):
        # The server's history was rolled back below what we have seen; the remedy is Gone's.
        return Gone(operation, message)
    match code:
        case 401 | 403 | 410:
            return _PLAIN[code](operation, message)
        case 404 if reason == "NotFound":
            return _not_found(operation, details, message)
        case 404:
            return _path_not_found(operation, message)
        case 409 if reason == "AlreadyExists":
            return AlreadyExists(operation, message)
        case 409:
            return Conflict(operation, message)
        case 422:
            fields = tuple(Cause(c.get("field", ""), c.get("message", "")) for c in causes)
            return Invalid(operation, message, fields)
        case 429:
            seconds = retry_after or details.get("retryAfterSeconds") or 1
            return TooManyRequests(operation, message, _seconds(seconds))
        case _ if code < 500:
            return BadRequest(operation, message)
        case _:
            return ServerError(operation, message)


_PLAIN: dict[int, type[ApiError]] = {401: Unauthorized, 403: Forbidden, 410: Gone}


def _not_found(operation: ApiOperation, details: Body, message: str) -> ApiError:
    """What was not found: `details` name it by group, plural (as `kind`) and name."""
    plural, group, name = (details.get(field) or "" for field in ("kind", "group", "name"))
    missing = (f"{plural}.{group}" if group else plural, name)
    key = operation.key
    if key is not None and name and missing == (operation.resource, key.name):
        return NotFound(operation, message)
    if key is not None and name and missing == ("namespaces", key.namespace):
        return NamespaceNotFound(operation, message)
    return _path_not_found(operation, message)


def _path_not_found(operation: ApiOperation, message: str) -> PathNotFound:
    return PathNotFound(
        operation,
        f"{message} (HTTP status 404 for the path, not for an object: check that the API server"
        " serves this version of the resource, and that no proxy answers in its place)",
    )


def _object(value: object) -> Body:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _seconds(value: str | int) -> float:
    try:
        return max(0.0, float(value))
    except ValueError:  # HTTP allows a date here; Kubernetes never sends one
        return 1.0
