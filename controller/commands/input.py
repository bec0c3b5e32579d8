"""What a command of the engine reads, a file or the cluster, and the errors that it prints."""

import sys
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path
from typing import Final

from carina_dra.kube import configuration
from carina_dra.kube.body import ObjectKey
from carina_dra.kube.client import Client
from carina_dra.kube.collector_pause import collector_paused
from carina_dra.kube.connection import ConfigurationError
from carina_dra.kube.errors import ApiError, Forbidden
from controller.commands.cluster_snapshot import ClusterSnapshot, read_cluster, read_settings
from controller.engine.files.file import read_snapshot

_CONTROLLER: Final = ObjectKey("carina-system", "carina-controller")
"""How deploy/ names the controller's ConfigMap and its Lease."""


class InputError(ValueError):
    """A file, or the cluster, cannot be read."""


class NotPermittedError(InputError):
    """The user may not read the whole cluster."""


def add_snapshot_argument(parser: ArgumentParser) -> None:
    """Adds `-f` and `--controller`; `chosen_cluster` takes the values."""
    parser.add_argument(
        *("-f", "--file"),
        type=Path,
        metavar="SNAPSHOT",
        help="a Snapshot, as YAML or JSON; - for standard input [the cluster of the kubeconfig]",
    )
    add_controller_argument(parser, "ConfigMap, for the settings of the cluster's controller")


def add_controller_argument(parser: ArgumentParser, what: str) -> None:
    """Adds `--controller`, by which an object of the controller is found: `what` it is for."""
    parser.add_argument(
        "--controller",
        type=_object_key,
        default=_CONTROLLER,
        metavar="NAMESPACE/NAME",
        help=f"{what} [{_CONTROLLER}]",
    )


def chosen_cluster(command: str, arguments: Namespace) -> ClusterSnapshot:
    """The snapshot in the chosen file; without one, that of the cluster of the kubeconfig.

    What cannot be read of the cluster is said on standard error, for which `command` is needed.

    Raises:
        NotPermittedError: the user may not read the whole cluster.
        InputError: the file or the cluster cannot be read.
        ManifestError: the file is not a valid snapshot.
        SettingsError: the settings of the cluster's controller are not valid.
    """
    with collector_paused(freeze=True):
        if arguments.file is not None:
            source, content = read_input(arguments.file)
            return ClusterSnapshot(read_snapshot(source, content))
        try:
            with Client(configuration.find(None)) as client:
                settings = read_settings(client, arguments.controller)
                found = read_cluster(client, settings, time.time())
        except Forbidden as error:
            raise NotPermittedError(f"the cluster cannot be read: {error}") from None
        except (ApiError, ConfigurationError) as error:
            raise InputError(f"the cluster cannot be read: {error}") from None
    for note in found.notes:
        print_error(command, f"note: {note}")
    return found


def read_input(path: Path) -> tuple[str, bytes]:
    """The name of a file in errors, and its content; `-` is the standard input.

    Raises:
        InputError: the file cannot be read.
    """
    if str(path) == "-":
        if sys.stdin is None:
            raise InputError("standard input: is closed")
        return "standard input", sys.stdin.buffer.read()
    try:
        return str(path), path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None


def print_error(command: str, text: str) -> None:
    """Prints one line to standard error; names in files may have any character."""
    line = "".join(
        character if character.isprintable() else ascii(character)[1:-1] for character in text
    )
    print(f"carina {command}: {line}", file=sys.stderr)


def _object_key(text: str) -> ObjectKey:
    namespace, _, name = text.partition("/")
    if not namespace or not name:
        raise ArgumentTypeError(f"{text!r} is not NAMESPACE/NAME")
    return ObjectKey(namespace, name)
