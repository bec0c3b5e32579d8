"""`carina queue stop` and `carina queue resume`: writes the hold of a Queue."""

from typing import Final

from carina_dra.kube import configuration
from carina_dra.kube.client import Client, MergePatch
from carina_dra.kube.connection import ConfigurationError
from carina_dra.kube.errors import ApiError, NotFound
from carina_dra.resource.errors import did_you_mean
from controller.engine.model.queue import Hold
from controller.names import QUEUES

_DONE: Final = {
    Hold.NONE: "is resumed: what waits in it starts when its turn comes",
    Hold.HOLD: "is on hold: nothing starts in it, and what runs goes on",
    Hold.DRAIN: (
        "is on hold: nothing starts in it, and its groups are evicted, a few at a time and as far "
        "as PodDisruptionBudgets allow"
    ),
}


class HoldError(ValueError):
    """The hold of a Queue cannot be written."""


def set_hold(queue: str, hold: Hold) -> str:
    """Writes the hold of a Queue of the cluster of the kubeconfig; says what that means.

    Raises:
        HoldError: there is no such queue, the user may not change it, the cluster cannot be
            reached, or its CRD is older than the hold.
    """
    try:
        with Client(configuration.find(None)) as client:
            if not queue or "/" in queue:  # no name, but another path of the API
                raise HoldError(_unknown(client, queue))
            try:
                found = client.patch(QUEUES, queue, MergePatch({"spec": {"hold": str(hold)}}))
            except NotFound:
                raise HoldError(_unknown(client, queue)) from None
    except (ApiError, ConfigurationError) as error:
        raise HoldError(f"queue {queue} is not changed: {error}") from None
    if found["spec"].get("hold") != hold:
        raise HoldError(
            f"queue {queue} is not changed: the CustomResourceDefinition of queues has no "
            "spec.hold; apply that of this version"
        )
    return f"queue {queue} {_DONE[hold]}"


def _unknown(client: Client, name: str) -> str:
    names = [each["metadata"]["name"] for each in client.list(QUEUES).items]
    remedy = did_you_mean(name, names) if names else "there is none"
    return f"there is no queue {name!r}; {remedy}"
