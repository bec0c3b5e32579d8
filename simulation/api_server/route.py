"""The resource, object and subresource of a request, and its verb."""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from carina_dra.kube.api_resource import Scope
from carina_dra.kube.body import ObjectKey
from simulation.api_server.resources import SERVED, ServedResource


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request. Header names are in lower case."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    content: bytes


@dataclass(frozen=True, slots=True)
class Route:
    """The resource or object that a path names; `name` is empty for a collection."""

    served: ServedResource
    namespace: str
    name: str
    subresource: str

    @property
    def key(self) -> ObjectKey:
        """The object's key."""
        return ObjectKey(self.namespace, self.name)


def parse_path(path: str) -> Route | None:
    """The route of a path; None if nothing is served there."""
    steps = [unquote(step) for step in path.strip("/").split("/")]
    match steps:
        case ["api", version, *rest]:
            group = ""
        case ["apis", group, version, *rest]:
            pass
        case _:
            return None
    namespace = ""
    if len(rest) >= 3 and rest[0] == "namespaces":
        inner = _served(group, version, rest[2], Scope.NAMESPACED)
        if inner is not None:
            namespace, rest = rest[1], rest[2:]
    if not rest or len(rest) > 3:
        return None
    plural, name, subresource = [*rest, "", ""][:3]
    served = _served(group, version, plural, Scope.NAMESPACED if namespace else None)
    if served is None or (subresource and subresource not in served.subresources):
        return None
    if name and not namespace and served.resource.scope is Scope.NAMESPACED:
        return None
    return Route(served, namespace, name, subresource)


def _served(group: str, version: str, plural: str, scope: Scope | None) -> ServedResource | None:
    for served in SERVED:
        resource = served.resource
        if (resource.group, resource.version, resource.plural) == (group, version, plural):
            return served if scope in (None, resource.scope) else None
    return None


def verb_of(request: Request, route: Route) -> str:
    """The verb, as in RBAC."""
    match request.method:
        case "GET" if route.name:
            return "get"
        case "GET":
            watching = request.query.get("watch") in ("true", "1")
            return "watch" if watching else "list"
        case "DELETE":
            return "delete" if route.name else "deletecollection"
        case "POST":
            return "create"
        case "PUT":
            return "update"
        case "PATCH":
            return "patch"
        case method:
            return method.lower()
