"""A program of Carina, from its arguments to its exit status, and its HTTP endpoint."""

import contextlib
import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Final, NoReturn

from carina_dra.process import logs, settings, termination
from carina_dra.process.http_endpoint import HttpEndpoint, Probe
from carina_dra.process.settings import SettingsError, SettingsT

_ENDED: Final = 0
_FAILED: Final = 1
_INVALID_SETTINGS: Final = 2
EXIT_CODES: Final[Mapping[int, str]] = {
    _ENDED: "SIGTERM or SIGINT ended it",
    _FAILED: "it cannot go on, as standard error says, or a thread failed, as the log says",
    _INVALID_SETTINGS: "a setting is not valid, or there is no way to reach the API server",
}
"""What the exit codes of a program mean."""


class ProgramError(Exception):
    """The program cannot go on, for a reason that is no bug; names the object and the remedy."""


def run_program(
    name: str,
    model: type[SettingsT],
    run: Callable[[SettingsT, threading.Event], None],
    arguments: Sequence[str] | None = None,
) -> None:
    """Calls `run` with the settings, and an event that ends it.

    The event is set by SIGTERM and SIGINT, and when a thread fails. Without `arguments`, they are
    those of the process.

    Raises:
        SystemExit: with 2 if the settings are invalid, which `run` may find, too, by raising
            SettingsError, and with 1 if `run` raises ProgramError or a thread has failed.
    """
    try:
        chosen = settings.load(
            model,
            sys.argv[1:] if arguments is None else arguments,
            os.environ,
            program=name,
            version=version("carina-dra"),
        )
        logs.configure(chosen.log_format, chosen.log_level)
        terminated = termination.watch()
        run(chosen, terminated.stop)
    except SettingsError as error:
        print(f"{name}: {error}", file=sys.stderr)
        raise SystemExit(_INVALID_SETTINGS) from None
    except ProgramError as error:
        print(f"{name}: {error}", file=sys.stderr)
        raise SystemExit(_FAILED) from None
    terminated.exit_if_failed()


def run_to_the_end(
    name: str,
    model: type[SettingsT],
    run: Callable[[SettingsT, threading.Event], None],
    arguments: Sequence[str] | None = None,
) -> NoReturn:
    """Ends the process after `run_program`, whatever its threads do.

    Python would wait for a thread that hangs in a driver, which no signal interrupts.
    """
    status = _ENDED
    try:
        run_program(name, model, run, arguments)
    except SystemExit as ended:
        status = _status(ended)
    except BaseException:  # noqa: BLE001 - as Python does, the process ends with it
        traceback.print_exc()
        status = _FAILED
    try:
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:  # it is closed
                stream.flush()
    finally:  # also if nobody reads what it writes
        os._exit(status)


def _status(ended: SystemExit) -> int:
    """The exit status, as the interpreter has it: a code that is no number is a message."""
    match ended.code:
        case None:
            return _ENDED
        case int(status):
            return status
        case message:
            print(message, file=sys.stderr)
            return _FAILED


@contextlib.contextmanager
def served_http(
    address: str,
    *,
    metrics: Callable[[], bytes],
    content_type: str,
    healthy: Probe,
    ready: Probe,
) -> Iterator[None]:
    """Serves the HTTP endpoint inside the `with` block, unless `address` is `off`.

    Raises:
        ProgramError: the address cannot be bound.
    """
    if address == "off":
        yield
        return
    try:
        endpoint = HttpEndpoint(
            address, metrics=metrics, content_type=content_type, healthy=healthy, ready=ready
        )
    except OSError as error:
        raise ProgramError(
            f"http_address {address} cannot be bound: {error}; set it to a free HOST:PORT, or to "
            "off"
        ) from error
    endpoint.start()
    try:
        yield
    finally:
        endpoint.stop()
