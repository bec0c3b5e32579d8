"""Named formats of Kubernetes (apiserver `library/format.go`)."""

import base64
import binascii
import re
from collections.abc import Callable, Iterator
from datetime import date
from typing import Final

from carina_dra.cel.errors import EvaluationError
from carina_dra.cel.functions.overload import function, method
from carina_dra.cel.functions.times import parse_timestamp
from carina_dra.cel.functions.urls import is_url
from carina_dra.cel.types import FORMAT, STRING, list_of, optional_of
from carina_dra.cel.values import NONE, NamedFormat, Optional

_LABEL: Final = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_LABEL_1035: Final = r"[a-z](?:[-a-z0-9]*[a-z0-9])?"
_WORD: Final = r"(?:[A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_UUID: Final = r"(?i:[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12})"


def _pattern(pattern: str, longest: int, what: str) -> Callable[[str], Iterator[str]]:
    compiled = re.compile(pattern, re.ASCII)

    def check(text: str) -> Iterator[str]:
        if len(text) > longest:
            yield f"must be no more than {longest} bytes"
        if compiled.fullmatch(text) is None:
            yield f"must be {what} (regex used for validation is '{pattern}')"

    return check


def _prefix(check: Callable[[str], Iterator[str]]) -> Callable[[str], Iterator[str]]:
    """The check for a prefix of a name."""
    return lambda text: check(f"{text[:-1]}a" if len(text) > 1 and text.endswith("-") else text)


def _qualified(text: str) -> Iterator[str]:
    domain, slash, name = text.rpartition("/")
    if slash and not domain:
        yield "prefix part must be non-empty"
    elif slash:
        yield from (f"prefix part {problem}" for problem in _CHECKS["dns1123Subdomain"](domain))
    yield from _pattern(_WORD, 63, "a qualified name")(name)


def _value(text: str) -> Iterator[str]:
    if text:
        yield from _pattern(_WORD, 63, "a valid label value")(text)


def _uri(text: str) -> Iterator[str]:
    if not is_url(text):
        yield "invalid URI"


def _byte(text: str) -> Iterator[str]:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        yield "invalid base64"


def _date(text: str) -> Iterator[str]:
    try:
        is_date = date.fromisoformat(text).isoformat() == text
    except ValueError:
        is_date = False
    if not is_date:
        yield "invalid date"


def _datetime(text: str) -> Iterator[str]:
    try:
        parse_timestamp(text.upper())
    except EvaluationError:
        yield "invalid datetime"


_LABEL_CHECK: Final = _pattern(_LABEL, 63, "a lowercase RFC 1123 label")
_SUBDOMAIN_CHECK: Final = _pattern(
    rf"{_LABEL}(?:\.{_LABEL})*", 253, "a lowercase RFC 1123 subdomain"
)
_LABEL_1035_CHECK: Final = _pattern(_LABEL_1035, 63, "a DNS-1035 label")
_CHECKS: Final[dict[str, Callable[[str], Iterator[str]]]] = {
    "dns1123Label": _LABEL_CHECK,
    "dns1123Subdomain": _SUBDOMAIN_CHECK,
    "dns1035Label": _LABEL_1035_CHECK,
    "qualifiedName": _qualified,
    "dns1123LabelPrefix": _prefix(_LABEL_CHECK),
    "dns1123SubdomainPrefix": _prefix(_SUBDOMAIN_CHECK),
    "dns1035LabelPrefix": _prefix(_LABEL_1035_CHECK),
    "labelValue": _value,
    "uri": _uri,
    "uuid": _pattern(_UUID, 36, "a UUID"),
    "byte": _byte,
    "date": _date,
    "datetime": _datetime,
}


def _named(name: str) -> Optional:
    return Optional((NamedFormat(name),)) if name in _CHECKS else NONE


def _validate(value: NamedFormat, text: str) -> Optional:
    problems = tuple(_CHECKS[value.name](text))
    return Optional((problems,)) if problems else NONE


def _constant(name: str) -> Callable[[], NamedFormat]:
    return lambda: NamedFormat(name)


OVERLOADS: Final = (
    function("format.named", (STRING,), optional_of(FORMAT), _named),
    *(function(f"format.{name}", (), FORMAT, _constant(name)) for name in _CHECKS),
    method(
        "validate",
        (FORMAT, STRING),
        optional_of(list_of(STRING)),
        _validate,
        lambda _, text: 20 + len(text),
    ),
)
