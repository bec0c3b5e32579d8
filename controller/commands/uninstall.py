"""`carina uninstall`: removes what the controller leaves in a cluster, before its manifests go."""

import time
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from carina_dra.cli.command import Command
from carina_dra.kube import configuration
from carina_dra.kube.body import ObjectKey
from carina_dra.kube.client import Client
from carina_dra.kube.connection import ConfigurationError
from carina_dra.kube.errors import ApiError, Conflict, Forbidden, Invalid, NotFound
from controller.act.uninstall import Remnant, describe, find_bindings, find_remnants, holder, remove
from controller.commands.input import add_controller_argument, print_error

__all__ = ["COMMAND"]

NOTHING_LEFT: Final = 0
FAILED: Final = 1
LEADS: Final = 3

_NAME: Final = "uninstall"
_POLICY_SECONDS: Final = 5.0
"""Seconds after which every API server has noticed that a policy is not in force any more."""
_ROUNDS: Final = 10
"""How often objects that have changed in between are read again."""
_EXIT_CODES: Final = f"""\
Scale the controller's Deployment to 0 first, and delete its manifests afterwards. You need the
permissions of an administrator of the cluster.

exit codes:
  {NOTHING_LEFT}  nothing is left; with --dry-run, what is left was printed
  {FAILED}  something is left, or the cluster cannot be read; running it again goes on
  {LEADS}  a controller leads, and nothing was done
"""


def run(arguments: Namespace) -> int:
    """Removes what is left; each removal is a line of standard output."""
    try:
        with Client(configuration.find(None)) as client:
            if arguments.dry_run:
                for remnant in (*find_bindings(client), *find_remnants(client)):
                    print(f"{describe(remnant)} (dry run)")
                return NOTHING_LEFT
            return _uninstall(client, arguments.controller)
    except (ApiError, ConfigurationError) as error:
        print_error(_NAME, str(error))
        return FAILED


def _uninstall(client: Client, lease: ObjectKey) -> int:
    leader = holder(client, lease, clock=time.monotonic, wait=time.sleep)
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
    return NOTHING_LEFT if is_done else FAILED


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
    add_controller_argument(parser, "Lease by which the controller leads")


COMMAND: Final = Command(
    add_arguments=_add_arguments,
    run=run,
)
