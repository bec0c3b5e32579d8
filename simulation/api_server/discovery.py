"""API discovery: the groups, versions and resources that are served."""

from carina_dra.kube.api_resource import Scope
from carina_dra.kube.body import Body
from simulation.api_server.resources import SERVED, ServedResource, groups

VERSION: Body = {
    "major": "1",
    "minor": "37",
    "gitVersion": "v1.37.0+embedded",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "2026-11-20T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "python",
}

_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


def document(path: str) -> Body | None:
    """The answer to a discovery path; None for any other path."""
    match path.strip("/").split("/"):
        case ["version"]:
            return VERSION
        case ["api"]:
            return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
        case ["apis"]:
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": _groups()}
        case ["apis", group]:
            return next((found for found in _groups() if found["name"] == group), None)
        case ["api", version]:
            return _resources("", version)
        case ["apis", group, version]:
            return _resources(group, version)
        case ["openapi", "v3"]:
            return {
                "paths": {root: {"serverRelativeURL": f"/openapi/v3/{root}"} for root in _roots()}
            }
        case ["openapi", "v3", *root]:
            return _openapi("/".join(root))
        case _:
            return None


def _groups() -> list[Body]:
    versions = (
        (group, {"groupVersion": f"{group}/{version}", "version": version})
        for group, version, _ in groups()
        if group
    )
    return [
        {"name": group, "versions": [version], "preferredVersion": version}
        for group, version in versions
    ]


def _resources(group: str, version: str) -> Body | None:
    members = [s for s in SERVED if (s.resource.group, s.resource.version) == (group, version)]
    if not members:
        return None
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": members[0].resource.api_version,
        "resources": [entry for served in members for entry in _entries(served)],
    }


def _entries(served: ServedResource) -> list[Body]:
    resource = served.resource
    common = {"namespaced": resource.scope is Scope.NAMESPACED, "kind": resource.kind}
    main = {
        "name": resource.plural,
        "singularName": resource.kind.lower(),
        "verbs": _VERBS,
        "shortNames": list(served.short_names),
        **common,
    }
    return [main] + [
        {
            "name": f"{resource.plural}/{subresource}",
            "singularName": "",
            "verbs": ["get", "patch", "update"] if subresource == "status" else ["create"],
            **common,
        }
        for subresource in served.subresources
    ]


def _roots() -> list[str]:
    return [
        f"apis/{group}/{version}" if group else f"api/{version}" for group, version, _ in groups()
    ]


def _openapi(root: str) -> Body | None:
    """The minimum for kubectl to leave the validation of fields to the server."""
    if root not in _roots():
        return None
    paths = {}
    for served in SERVED:
        resource = served.resource
        path = resource.collection_path(None)
        if not path.startswith(f"/{root}/"):
            continue
        kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
        validation = {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}
        patch = {
            "parameters": [validation],
            "responses": {},
            "x-kubernetes-action": "patch",
            "x-kubernetes-group-version-kind": kind,
        }
        paths[f"{path}/{{name}}"] = {"patch": patch}
    info = {"title": "Kubernetes", "version": "v1.37.0"}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": {}}}
