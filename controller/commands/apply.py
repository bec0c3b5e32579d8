"""`carina apply`: makes the Queues of a file those of the cluster, by server-side apply.

The Helm chart cannot have objects of kinds that it defines itself: Helm looks up all kinds before
it creates anything. After an installation it runs this command, in the image that it runs anyway.
"""

import time
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from pathlib import Path
from typing import Any, Final

import yaml

from carina_dra.cli.command import Command
from carina_dra.kube import configuration
from carina_dra.kube.client import ApplyPatch, Client
from carina_dra.kube.connection import ConfigurationError
from carina_dra.kube.errors import ApiError, PathNotFound
from carina_dra.resource.errors import BadValueError
from controller.api.queue import read_declared_queue
from controller.commands.input import InputError, print_error, read_input
from controller.names import QUEUES

__all__ = ["COMMAND"]

APPLIED: Final = 0
FAILED: Final = 1
INVALID_INPUT: Final = 2

_NAME: Final = "apply"
_EXIT_CODES: Final = f"""\
exit codes:
  {APPLIED}  all Queues were applied
  {FAILED}  a Queue was not applied, or the cluster cannot be reached
  {INVALID_INPUT}  an argument or the file is not valid, and nothing was applied
"""
_MANAGER: Final = "carina"
_SERVED_SECONDS: Final = 60.0
"""Seconds that an API server has to serve a kind that was just defined."""
_POLL_SECONDS: Final = 1.0


def run(arguments: Namespace) -> int:
    """Applies the Queues; each is a line of standard output."""
    try:
        queues = _queues(*read_input(arguments.file))
        with Client(configuration.find(None)) as client:
            for queue in queues:
                _apply(client, queue)
                print(f"Queue {queue['metadata']['name']}: applied")
    except InputError as error:
        print_error(_NAME, str(error))
        return INVALID_INPUT
    except (ApiError, ConfigurationError) as error:
        print_error(_NAME, str(error))
        return FAILED
    return APPLIED


def _queues(source: str, content: bytes) -> list[dict[str, Any]]:
    """The Queues of a file, all of them valid. Raises InputError."""
    try:
        documents = [body for body in yaml.safe_load_all(content) if body is not None]
    except yaml.YAMLError as error:
        raise InputError(f"{source}: {error}") from None
    for number, body in enumerate(documents, start=1):
        place = f"{source}, document {number}"
        kind = (body.get("apiVersion"), body.get("kind")) if isinstance(body, dict) else body
        if kind != (QUEUES.api_version, QUEUES.kind):
            raise InputError(f"{place}: is no Queue of {QUEUES.api_version}")
        try:
            read_declared_queue(body)
        except BadValueError as error:
            where = f"{place}: {error.path}".removesuffix(": ")
            raise InputError(f"{where}: {error.problem}") from None
    return documents


def _apply(client: Client, body: dict[str, Any]) -> None:
    deadline = time.monotonic() + _SERVED_SECONDS
    while True:
        try:
            client.patch(QUEUES, body["metadata"]["name"], ApplyPatch(body, _MANAGER))
        except PathNotFound:
            if time.monotonic() >= deadline:
                raise
            time.sleep(_POLL_SECONDS)
        else:
            return


def _add_arguments(parser: ArgumentParser) -> None:
    parser.formatter_class = RawDescriptionHelpFormatter
    parser.epilog = _EXIT_CODES
    parser.add_argument(
        *("-f", "--file"),
        type=Path,
        required=True,
        metavar="FILE",
        help="Queues, as YAML or JSON; - for standard input",
    )


COMMAND: Final = Command(
    add_arguments=_add_arguments,
    run=run,
)
