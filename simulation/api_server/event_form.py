"""Events in their two API versions: kept as events.k8s.io/v1, shown as core v1 to who asks.

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


def shown(served: ServedResource, body: Body) -> Body:
    """An object as it is shown under a resource."""
    if served.resource == CORE_EVENTS:
        return _renamed(body, _TO_CORE) | {"apiVersion": "v1"}
    return body


def kept(served: ServedResource, body: Body) -> Body:
    """An object that came in under a resource, as it is kept."""
    if served.resource == CORE_EVENTS:
        return _renamed(body, _FROM_CORE) | {"apiVersion": EVENTS.api_version}
    return body


def _renamed(body: Body, names: dict[str, str]) -> Body:
    return {names.get(name, name): value for name, value in body.items()}
