"""The failures of requests to the API server, as types.

A failure is translated once, where the response is read: from the Status object that the server
sends, or from the transport. Each error names the operation and its object.
https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/status/
"""

# ruff: noqa: N818 - the classes are named after the reasons in Status

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from carina_dra.kube.api_resource import ApiResource
from carina_dra.kube.body import Body, ObjectKey, parse_json


@dataclass(frozen=True, slots=True)
class ApiOperation:
    """A verb on a resource, or on one object of it."""

    verb: str
    resource: str
    key: ObjectKey | None = None

    @classmethod
    def on(
        cls, verb: str, resource: ApiResource, namespace: str | None = None, name: str = ""
    ) -> "ApiOperation":
        """An operation on one object, or without a name on those of a namespace or cluster."""
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
    """One reason why the API server rejects an object: a field, and what is wrong with it."""

    field: str
    message: str


class ApiError(Exception):
    """An operation on the Kubernetes API failed. Only subclasses are raised."""

    retriable: ClassVar[bool] = False
    """Whether the same request, unchanged, may succeed later."""

    def __init__(self, operation: ApiOperation, message: str) -> None:
        super().__init__(f"{operation}: {message}")
        self.operation = operation
        self.message = message


class NotFound(ApiError):
    """The object does not exist. The API server's Status names this very object."""


class NamespaceNotFound(ApiError):
    """The namespace that an object was to be created in does not exist."""


class PathNotFound(ApiError):
    """HTTP status 404 that says nothing about the object, which may well exist.

    The API server does not serve the resource in this version, or something else answered, such as
    a load balancer.
    """

    retriable = True


class AlreadyExists(ApiError):
    """An object of this name exists."""


class Conflict(ApiError):
    """The object has changed, or is not the one that was meant: read it again, then decide."""


class VersionGone(ApiError):
    """The server no longer has the resource version or continue token: list again."""


class Invalid(ApiError):
    """The API server rejects the content of the object; `causes` name the fields."""

    def __init__(self, operation: ApiOperation, message: str, causes: tuple[Cause, ...]) -> None:
        super().__init__(operation, message)
        self.causes = causes


class Forbidden(ApiError):
    """Not permitted, by RBAC or an admission policy."""


class Unauthorized(ApiError):
    """The API server does not accept the credentials."""


class BadRequest(ApiError):
    """The API server rejects the request itself (any other 4xx status)."""


_LONGEST_RETRY_AFTER: Final = 300.0
"""Seconds. No client waits longer for a server, whatever it asks for."""


class TooManyRequests(ApiError):
    """The API server asks the client to wait for `retry_after` seconds."""

    retriable = True

    def __init__(self, operation: ApiOperation, message: str, retry_after: float) -> None:
        super().__init__(operation, message)
        self.retry_after = retry_after


class ServerError(ApiError):
    """The API server failed (status 5xx), or its answer cannot be read."""

    retriable = True


class Unavailable(ServerError):
    """Nobody could answer for the API server (status 502 to 504); it may have got the request."""


class Unreachable(ApiError):
    """No answer: the connection was refused or lost, TLS failed, or the time ran out.

    It is unknown whether a write was carried out.
    """

    retriable = True


def from_response(operation: ApiOperation, code: int, content: bytes, retry_after: str) -> ApiError:
    """The error for an HTTP response with status `code`, which is 300 or more.

    retry_after: the value of the Retry-After header, or empty.
    """
    try:
        status = parse_json(content)
    except ValueError:
        status = None
    if not isinstance(status, dict) or status.get("kind") != "Status":
        text = content.decode(errors="replace").strip()
        status = {"message": text[:1000] or f"HTTP status {code} with an empty body"}
    return from_status(operation, {**status, "code": code}, retry_after)


def from_status(operation: ApiOperation, status: Body, retry_after: str = "") -> ApiError:
    """The error for a Status object."""
    code = int(status.get("code") or 500)
    reason = status.get("reason") or ""
    details = _object(status.get("details"))
    message = status.get("message") or reason or f"HTTP status {code}"
    causes = [_object(cause) for cause in _list(details.get("causes"))]
    if any(cause.get("reason") == "ResourceVersionTooLarge" for cause in causes):
        # The server was restored to an earlier version than we have seen: list again, as for Gone.
        return VersionGone(operation, message)
    match code:
        case 401 | 403 | 410 | 502 | 503 | 504:
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
            return _server_error(operation, message)


_TOO_LARGE: Final = "request is too large"
"""What etcd says of an object; the API server passes it on as a failure of its own."""

_PLAIN: dict[int, type[ApiError]] = {
    401: Unauthorized,
    403: Forbidden,
    410: VersionGone,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}


def _server_error(operation: ApiOperation, message: str) -> ApiError:
    if _TOO_LARGE in message:
        return Invalid(operation, message, ())
    return ServerError(operation, message)


def _not_found(operation: ApiOperation, details: Body, message: str) -> ApiError:
    """The error for a NotFound, whose `details` name the object by group, `kind` (plural), name."""
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


def _seconds(value: Any) -> float:
    try:
        return min(max(0.0, float(value)), _LONGEST_RETRY_AFTER)
    except (ValueError, TypeError):  # HTTP allows a date here; Kubernetes never sends one
        return 1.0
