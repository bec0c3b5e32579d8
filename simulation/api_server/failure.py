"""Errors, as the Status objects with which the real API server answers."""

from collections.abc import Sequence

from carina_dra.kube.api_resource import ApiResource
from carina_dra.kube.body import Body


class Failure(Exception):  # noqa: N818 - Status calls it that
    """A request failed, with an HTTP status, a reason and a message."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        resource: ApiResource | None = None,
        name: str = "",
        causes: Sequence[Body] = (),
        retry_after: int = 0,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.retry_after = retry_after
        self._resource = resource
        self._name = name
        self._causes = causes

    def status(self) -> Body:
        """The body of the answer, and the object of an ERROR event."""
        details: Body = {}
        if self._resource is not None:
            details = {"kind": self._resource.plural}
            if self._resource.group:
                details["group"] = self._resource.group
        if self._name:
            details["name"] = self._name
        if self._causes:
            details["causes"] = list(self._causes)
        if self.retry_after:
            details["retryAfterSeconds"] = self.retry_after
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "details": details,
            "code": self.code,
        }


def bad_request(message: str) -> Failure:
    """400: the request is malformed."""
    return Failure(400, "BadRequest", message)


def not_found(resource: ApiResource, name: str) -> Failure:
    """404: there is no such object."""
    message = f'{resource.qualified_name} "{name}" not found'
    return Failure(404, "NotFound", message, resource=resource, name=name)


def no_such_path() -> Failure:
    """404: nothing is served at this path."""
    return Failure(404, "NotFound", "the server could not find the requested resource")


def not_allowed() -> Failure:
    """405: the path does not support the method."""
    message = "the server does not allow this method on the requested resource"
    return Failure(405, "MethodNotAllowed", message)


def already_exists(resource: ApiResource, name: str) -> Failure:
    """409: the name is taken."""
    message = f'{resource.qualified_name} "{name}" already exists'
    return Failure(409, "AlreadyExists", message, resource=resource, name=name)


def conflict(resource: ApiResource, name: str, why: str, *, causes: Sequence[Body] = ()) -> Failure:
    """409: the object is in a state that the request does not expect."""
    message = f'Operation cannot be fulfilled on {resource.qualified_name} "{name}": {why}'
    return Failure(409, "Conflict", message, resource=resource, name=name, causes=causes)


def modified(resource: ApiResource, name: str) -> Failure:
    """409: the object has changed since it was read."""
    why = "the object has been modified; please apply your changes to the latest version"
    return conflict(resource, name, f"{why} and try again")


def invalid(resource: ApiResource, name: str, field: str, why: str) -> Failure:
    """422: a field has a value that the API does not allow."""
    message = f'{resource.kind}.{resource.group or "core"} "{name}" is invalid: {field}: {why}'
    cause = {"reason": "FieldValueInvalid", "message": why, "field": field}
    return Failure(422, "Invalid", message, resource=resource, name=name, causes=[cause])


def expired(message: str) -> Failure:
    """410: a resource version or continue token older than the history."""
    return Failure(410, "Expired", message)


def too_large(revision: int, current: int) -> Failure:
    """504: a resource version that does not exist yet."""
    message = f"Too large resource version: {revision}, current: {current}"
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    return Failure(504, "Timeout", message, causes=[cause], retry_after=1)
