import pytest

from simulation.api_server.route import parse_path


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/api/v1/nodes", ("nodes", "", "", "")),
        ("/api/v1/nodes/n1/status", ("nodes", "", "n1", "status")),
        ("/api/v1/namespaces", ("namespaces", "", "", "")),
        ("/api/v1/namespaces/team", ("namespaces", "", "team", "")),
        ("/api/v1/namespaces/team/status", ("namespaces", "", "team", "status")),
        ("/api/v1/namespaces/team/pods", ("pods", "team", "", "")),
        ("/api/v1/namespaces/team/pods/p/binding", ("pods", "team", "p", "binding")),
        ("/api/v1/pods", ("pods", "", "", "")),
        ("/apis/resource.k8s.io/v1/resourceslices/a%2Fb", ("resourceslices", "", "a/b", "")),
    ],
)
def test_a_path_names_an_object(path: str, expected: tuple[str, str, str, str]) -> None:
    route = parse_path(path)
    assert route is not None
    plural = route.served.resource.plural
    assert (plural, route.namespace, route.name, route.subresource) == expected


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/api/v1",
        "/api/v1/gadgets",
        "/api/v2/nodes",
        "/api/v1/pods/p",
        "/api/v1/namespaces/team/nodes",
        "/api/v1/nodes/n1/scale",
        "/api/v1/nodes/n1/status/more",
        "/apis/apps/v1beta1/daemonsets",
    ],
)
def test_or_there_is_nothing(path: str) -> None:
    assert parse_path(path) is None
