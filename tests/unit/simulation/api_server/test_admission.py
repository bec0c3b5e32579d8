"""What admission makes of new objects."""

import json

from carina_dra.kube.api_resource import NAMESPACES, ApiResource
from carina_dra.kube.body import Body
from simulation.api_server.api import Answer, Api
from simulation.api_server.route import Request


def label(resource: ApiResource, body: Body) -> Body:
    return {**body, "metadata": {**body["metadata"], "labels": {"is": resource.plural}}}


def request(method: str, path: str, body: Body) -> Request:
    headers = {"content-type": "application/merge-patch+json"}
    return Request(method, path, {}, headers, json.dumps(body).encode())


def labels(api: Api, asked: Request) -> object:
    """The labels of the object in the answer."""
    answer = api.handle(asked)
    assert isinstance(answer, Answer)
    return answer.body["metadata"].get("labels")


def test_new_object_is_stored_as_admission_gives_it() -> None:
    new = request("POST", NAMESPACES.collection_path(None), {"metadata": {"name": "one"}})
    assert labels(Api(admit=label), new) == {"is": "namespaces"}


def test_admission_is_not_asked_about_changes() -> None:
    change = request("PATCH", NAMESPACES.object_path(None, "default"), {"spec": {"finalizers": []}})
    assert labels(Api(admit=label), change) is None
