"""Structured logs on standard error: one line for each event, with its facts as fields.

Other modules use the standard library's loggers, `_log.info("what happened", extra={facts})`, so
that the records of libraries are formatted in the same way.
"""

import json
import logging
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final, Literal, TypeAlias

_log = logging.getLogger(__name__)

LogFormat: TypeAlias = Literal["json", "text"]

_NO_FACTS: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""Attributes of every record; all others were passed as `extra`."""


def configure(log_format: LogFormat, level: str) -> None:
    """Configures logging for the process."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Json() if log_format == "json" else _Text())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(level.upper())


def report_failed_threads(failed: Callable[[], None]) -> None:
    """Logs an exception that ends a thread as one record, and then calls `failed`."""

    def report(arguments: threading.ExceptHookArgs) -> None:
        error = arguments.exc_value
        thread = None if arguments.thread is None else arguments.thread.name
        _log.critical("a thread failed", exc_info=error, extra={"thread_name": thread})
        failed()

    threading.excepthook = report


class _Json(logging.Formatter):
    """One JSON object on each line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "timestamp": _timestamp(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **_facts(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class _Text(logging.Formatter):
    """Text for people."""

    def format(self, record: logging.LogRecord) -> str:
        level = record.levelname.lower()
        facts = "".join(f" {name}={value!r}" for name, value in _facts(record).items())
        line = f"{_timestamp(record)} {level:7} {record.getMessage()}{facts}"
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def _facts(record: logging.LogRecord) -> Mapping[str, object]:
    return {name: value for name, value in vars(record).items() if name not in _NO_FACTS}


def _timestamp(record: logging.LogRecord) -> str:
    """RFC 3339, in UTC, with microseconds."""
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds")
