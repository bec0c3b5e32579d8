"""URLs (apiserver `library/urls.go`)."""

import re
from typing import Final
from urllib.parse import quote, unquote_plus

from carina_dra.cel.errors import EvaluationError
from carina_dra.cel.functions.overload import function, method
from carina_dra.cel.types import BOOL, STRING, URL, list_of, map_of
from carina_dra.cel.values import Url

_URL: Final = re.compile(
    r"(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?://(?P<authority>[^/?]*))?)?(?P<path>[^?]*)"
    r"(?:\?(?P<query>.*))?",
    re.ASCII | re.DOTALL,
)
_BAD: Final = re.compile(r"[\x00-\x1f\x7f ]|%(?![0-9A-Fa-f]{2})")
_PORT: Final = re.compile(r":[0-9]*\Z", re.ASCII)
_SAFE_IN_PATH: Final = "/$&+,;=:@!'()*%~[]"


def _url(text: str) -> Url:
    """Parses an absolute URL or an absolute path.

    Raises:
        EvaluationError: the text is neither.
    """
    match = _URL.fullmatch(text)
    if match is None or not text or _BAD.search(text.partition("?")[0]):
        raise EvaluationError(f"URL parse error during conversion from string: {text!r}")
    scheme, authority = match["scheme"] or "", match["authority"]
    if not scheme and (not match["path"].startswith("/") or text.startswith("//")):
        raise EvaluationError(f"URL parse error during conversion from string: {text!r}")
    host = (authority or "").rpartition("@")[2]
    _check_port(text, host)
    return Url(scheme.lower(), host, match["path"], tuple(_pairs(match["query"] or "")))


def _check_port(text: str, host: str) -> None:
    after = host.rpartition("]")[2] if host.startswith("[") else host
    if ":" in after and _PORT.search(after) is None:
        raise EvaluationError(f"URL parse error during conversion from string: {text!r}")


def _pairs(query: str) -> list[tuple[str, str]]:
    found = []
    for pair in query.split("&"):
        if pair and ";" not in pair and not _BAD.search(pair.replace(" ", "")):
            name, _, value = pair.partition("=")
            found.append((unquote_plus(name), unquote_plus(value)))
    return found


def is_url(text: str) -> bool:
    try:
        _url(text)
    except EvaluationError:
        return False
    return True


def _host_name(url: Url) -> str:
    name = url.host.partition("]")[0][1:] if url.host.startswith("[") else url.host
    return name if url.host.startswith("[") else name.partition(":")[0]


def _port(url: Url) -> str:
    after = url.host.rpartition("]")[2] if url.host.startswith("[") else url.host
    return after.partition(":")[2]


def _query(url: Url) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for name, value in url.query:
        found[name] = (*found.get(name, ()), value)
    return found


OVERLOADS: Final = (
    function("url", (STRING,), URL, _url),
    function("isURL", (STRING,), BOOL, is_url),
    method("getScheme", (URL,), STRING, lambda url: url.scheme),
    method("getHost", (URL,), STRING, lambda url: url.host),
    method("getHostname", (URL,), STRING, _host_name),
    method("getPort", (URL,), STRING, _port),
    method("getEscapedPath", (URL,), STRING, lambda url: quote(url.path, _SAFE_IN_PATH)),
    method("getQuery", (URL,), map_of(STRING, list_of(STRING)), _query),
)
