"""Events in their two API versions: stored as events.k8s.io/v1, also served as core v1.

kubectl reads the core version, recorders write the other; the API server converts between them.
"""

from carina_dra.kube.api_resource import EVENTS
from carina_dra.kube.body import Body
from simulation.api_server.resources import CORE_EVENTS, ServedResource

_NAMES = {  # events.k8s.io/v1 to core v1
    "regarding": "involvedObject",
    "note": "message",
    "reportingController": "reportingComponent",
    "deprecatedCount": "count",
    "deprecatedFirstTimestamp": "firstTimestamp",
    "deprecatedLastTimestamp": "lastTimestamp",
    "deprecatedSource": "source",
}
_TO_CORE = _NAMES
_FROM_CORE = {core: new for new, core in _NAMES.items()}


def as_served(served: ServedResource, body: Body) -> Body:
    """A stored object in the form of the resource that it is served as."""
    if served.resource == CORE_EVENTS:
        return _renamed(body, _TO_CORE) | {"apiVersion": "v1"}
    return body


def as_stored(served: ServedResource, body: Body) -> Body:
    """An object in the form in which it is stored."""
    if served.resource == CORE_EVENTS:
        return _renamed(body, _FROM_CORE) | {"apiVersion": EVENTS.api_version}
    return body


def _renamed(body: Body, names: dict[str, str]) -> Body:
    return {names.get(name, name): value for name, value in body.items()}
