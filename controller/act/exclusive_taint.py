"""Exclusive mode: a taint on all devices of the driver, so that only the controller allocates them.

kube-scheduler looks at taints of devices when it allocates a claim, and not when a claim has its
devices already. Claims that tolerate the taint are refused by a policy (deploy/exclusive).
"""

import logging
import threading
from typing import Final

from carina_dra.kube.api_resource import DEVICE_TAINT_RULES
from carina_dra.kube.backoff import Backoff
from carina_dra.kube.body import Body
from carina_dra.kube.client import Client, Preconditions, Selection
from carina_dra.kube.errors import ApiError, Forbidden, PathNotFound
from carina_dra.kube.reflector import Reflector
from controller.names import TAINT
from controller.report.metrics import ControllerMetrics, Write

RULE: Final = "carina-exclusive"
"""The name of the DeviceTaintRule."""
_THE_RULE: Final = Selection(fields=f"metadata.name={RULE}")
_TIMEOUT: Final = 5.0
"""Seconds for one request."""
_CHECK_SECONDS: Final = 30.0
"""Seconds after which the rule is looked at although no change of it was seen."""

_log = logging.getLogger(__name__)


class ExclusiveTaint:
    """Keeps the DeviceTaintRule as it should be, in a thread, from `start` to `stop`.

    The rule stays afterwards, since the devices are for queues whether a controller runs or not.
    """

    def __init__(self, client: Client, driver: str, metrics: ControllerMetrics) -> None:
        """`driver` is the DRA driver whose devices get the taint."""
        self._client = client
        self._metrics = metrics
        self._rule = _rule(driver)
        self._changed = threading.Event()
        self._stopping = threading.Event()
        self._reflector = Reflector(
            client,
            DEVICE_TAINT_RULES,
            lambda body: body,
            selection=_THE_RULE,
            on_change=lambda _: self._changed.set(),
        )
        self._thread = threading.Thread(target=self._keep, name="exclusive-taint", daemon=True)

    def start(self) -> None:
        """Starts."""
        self._reflector.start()
        self._thread.start()

    def stop(self) -> None:
        """Stops, after a request that has begun."""
        self._stopping.set()
        self._changed.set()
        self._reflector.stop()
        self._thread.join()

    def _keep(self) -> None:
        backoff = Backoff(cap=_CHECK_SECONDS)
        # A rule that is removed before the first list would be missed until the next check.
        self._reflector.wait_synced(_TIMEOUT)
        while not self._stopping.is_set():
            self._changed.clear()
            try:
                self._ensure()
            except ApiError as error:
                _warn(error)
                self._stopping.wait(backoff.next())
            else:
                backoff.reset()
                self._changed.wait(_CHECK_SECONDS)

    def _ensure(self) -> None:
        found = _find(self._client)
        if found is None:
            with self._metrics.writing(Write.TAINT_RULE):
                self._client.create(DEVICE_TAINT_RULES, self._rule, timeout=_TIMEOUT)
        elif not _has_effect(found, self._rule):
            changed = {**found, "spec": self._rule["spec"]}
            with self._metrics.writing(Write.TAINT_RULE):
                self._client.replace(DEVICE_TAINT_RULES, changed, timeout=_TIMEOUT)


def remove_taint(client: Client, metrics: ControllerMetrics) -> None:
    """Removes the rule that an earlier process in exclusive mode has left; failures are logged.

    Who may not even see the rules has never been in exclusive mode.
    """
    try:
        found = _find(client)
        if found is not None:
            same = Preconditions(uid=found["metadata"]["uid"])
            with metrics.writing(Write.TAINT_RULE):
                client.delete(DEVICE_TAINT_RULES, RULE, preconditions=same, timeout=_TIMEOUT)
    except (Forbidden, PathNotFound) as error:
        if error.operation.verb != "list":
            _warn(error)
    except ApiError as error:
        _warn(error)


def _find(client: Client) -> Body | None:
    listed = client.list(DEVICE_TAINT_RULES, _THE_RULE, timeout=_TIMEOUT).items
    return listed[0] if listed else None


def _warn(error: ApiError) -> None:
    _log.warning(
        "the taint of exclusive mode is not as it should be",
        extra={"rule": RULE, "error": str(error)},
    )


def _rule(driver: str) -> Body:
    return {
        "apiVersion": DEVICE_TAINT_RULES.api_version,
        "kind": DEVICE_TAINT_RULES.kind,
        "metadata": {"name": RULE},
        "spec": {
            "deviceSelector": {"driver": driver},
            "taint": {"key": TAINT, "effect": "NoSchedule"},
        },
    }


def _has_effect(found: Body, wanted: Body) -> bool:
    """Whether a rule says what is wanted; the API server adds the time of a taint."""
    spec = found["spec"]
    taint = {key: value for key, value in spec["taint"].items() if key != "timeAdded"}
    return bool({**spec, "taint": taint} == wanted["spec"])
