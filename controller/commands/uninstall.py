"""`carina uninstall`: removes what the controller leaves in a cluster, before its manifests go."""

import time
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from carina_dra.cli.command import Command
from carina_dra.kube import configuration
from carina_dra.kube.body import Body, ObjectKey
from carina_dra.kube.client import Client
from carina_dra.kube.connection import ConfigurationError
from carina_dra.kube.errors import ApiError, Conflict, Forbidden, Invalid, NotFound
from controller.act.uninstall import (
    HeldQueue,
    Remnant,
    describe,
    describe_use,
    find_bindings,
    find_held_queues,
    find_in_use,
    find_remnants,
    holder,
    name_of,
    remove,
    scale_down,
)
from controller.commands.input import add_controller_argument, print_error

__all__ = ["COMMAND"]

NOTHING_LEFT: Final = 0
FAILED: Final = 1
LEADS: Final = 3
IN_USE: Final = 4

_NAME: Final = "uninstall"
_POLICY_SECONDS: Final = 5.0
"""Seconds after which every API server has noticed that a policy is not in force any more."""
_SETTLE_SECONDS: Final = 10.0
"""Seconds for which `--if-idle` looks again, while pods that end are cleaned up."""
_SETTLE_POLL_SECONDS: Final = 1.0
_ROUNDS: Final = 10
"""How often objects that have changed in between are read again."""
_STOP_SECONDS: Final = 90.0
"""Seconds that a controller has to stop leading when its Deployment is scaled to 0."""
_EXIT_CODES: Final = f"""\
Scale the controller's Deployment to 0 first, or say --scale-down, and delete its manifests
afterwards. You need the permissions of an administrator of the cluster.

exit codes:
  {NOTHING_LEFT}  nothing is left; with --dry-run, what is left was printed
  {FAILED}  something is left, or the cluster cannot be read; running it again goes on
  {LEADS}  a controller leads, and nothing was done
  {IN_USE}  with --driver: pods use its devices; with --if-idle: objects wait for the controller;
     nothing was done
"""


def run(arguments: Namespace) -> int:
    """Removes what is left; each removal is a line of standard output."""
    try:
        with Client(configuration.find(None)) as client:
            if arguments.dry_run:
                for remnant in (*find_bindings(client), *find_remnants(client)):
                    print(f"{describe(remnant)} (dry run)")
                return NOTHING_LEFT
            if arguments.if_idle:
                return _uninstall_if_idle(client, arguments.driver)
            return _uninstall(client, arguments)
    except (ApiError, ConfigurationError) as error:
        print_error(_NAME, str(error))
        return FAILED


def _uninstall_if_idle(client: Client, driver: str | None) -> int:
    """Releases the Queues, if nothing waits for the controller and no device is in use.

    A controller may lead: it writes a Queue again only when a group is charged to it. What pods
    that have just ended leave, the controller and the plugin still remove.
    """
    deadline = time.monotonic() + _SETTLE_SECONDS
    while True:
        waiting = [
            remnant for remnant in find_remnants(client) if not isinstance(remnant, HeldQueue)
        ]
        used = _in_use(client, driver)
        if not waiting and not used:
            return NOTHING_LEFT if _removed(client, find_held_queues).is_done else FAILED
        if time.monotonic() >= deadline:
            break
        time.sleep(_SETTLE_POLL_SECONDS)
    for remnant in waiting:
        print(f"{name_of(remnant)}: waits for the controller")
    _say_in_use(used, driver)
    if waiting:
        print_error(
            _NAME,
            f"{len(waiting)} objects wait for the controller, and would wait for ever: free them "
            "with carina uninstall --scale-down, or with uninstall.release of the Helm chart",
        )
    return IN_USE


def _in_use(client: Client, driver: str | None) -> list[Body]:
    return [] if driver is None else find_in_use(client, driver)


def _say_in_use(used: Sequence[Body], driver: str | None) -> None:
    for claim in used:
        print(describe_use(claim))
    if used:
        print_error(_NAME, f"{len(used)} claims have devices of {driver}: end their pods first")


def _refused(client: Client, driver: str | None) -> bool:
    """Whether devices of the driver are in use; says which."""
    used = _in_use(client, driver)
    _say_in_use(used, driver)
    return bool(used)


def _uninstall(client: Client, arguments: Namespace) -> int:
    lease: ObjectKey = arguments.controller
    if _refused(client, arguments.driver):
        return IN_USE
    if arguments.scale_down:
        scale_down(client, lease)
    leader = _leader(client, lease, wait_seconds=_STOP_SECONDS if arguments.scale_down else 0.0)
    if leader is not None:
        print_error(
            _NAME,
            f"{leader} leads by Lease {lease}; scale the controller's Deployment to 0 first, such "
            f"as with: kubectl scale deployment {lease.name} -n {lease.namespace} --replicas=0",
        )
        return LEADS
    of_policies = _removed(client, find_bindings)
    if of_policies.count:
        # New pods must not get a gate after the last look for pods that have one.
        time.sleep(_POLICY_SECONDS)
    is_done = of_policies.is_done and _removed(client, find_remnants).is_done
    if is_done and _refused(client, arguments.driver):  # pods that have come meanwhile
        return IN_USE
    return NOTHING_LEFT if is_done else FAILED


def _leader(client: Client, lease: ObjectKey, *, wait_seconds: float) -> str | None:
    """Who leads, after it has had time to stop."""
    deadline = time.monotonic() + wait_seconds
    while True:
        leader = holder(client, lease, clock=time.monotonic, wait=time.sleep)
        if leader is None or time.monotonic() >= deadline:
            return leader


@dataclass(frozen=True, slots=True)
class _Removed:
    count: int
    is_done: bool
    """Whether nothing is left."""


def _removed(client: Client, find: Callable[[Client], Sequence[Remnant]]) -> _Removed:
    """Removes what is found until nothing is. Says what cannot be removed, and goes on."""
    count, refused = 0, set[str]()
    for _ in range(_ROUNDS):
        left = [remnant for remnant in find(client) if describe(remnant) not in refused]
        if not left:
            return _Removed(count, is_done=not refused)
        for remnant in left:
            try:
                remove(client, remnant)
            except (Conflict, NotFound):
                continue  # it is looked at again
            except (Forbidden, Invalid) as error:
                refused.add(describe(remnant))
                print_error(_NAME, str(error))
            else:
                count += 1
                print(describe(remnant))
    print_error(_NAME, "objects change all the time; run it again")
    return _Removed(count, is_done=False)


def _add_arguments(parser: ArgumentParser) -> None:
    parser.formatter_class = RawDescriptionHelpFormatter
    parser.epilog = _EXIT_CODES
    parser.add_argument(
        "--dry-run", action="store_true", help="print what would be done, and do nothing"
    )
    parser.add_argument(
        "--if-idle",
        action="store_true",
        help="fail, and do nothing, if objects wait for the controller; otherwise only Queues lose "
        "their finalizer, also while it leads",
    )
    parser.add_argument(
        "--driver",
        metavar="NAME",
        help="the DRA driver whose plugin is removed as well: fail, and do nothing, while pods use "
        "its devices",
    )
    parser.add_argument(
        "--scale-down",
        action="store_true",
        help="scale the controller's Deployment, which has the name of its Lease, to 0 first",
    )
    add_controller_argument(parser, "Lease by which the controller leads")


COMMAND: Final = Command(
    add_arguments=_add_arguments,
    run=run,
)
