"""URLs (apiserver `library/urls.go`)."""

import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import quote, unquote_plus

from carina_dra.cel.errors import EvaluationError
from carina_dra.cel.functions.cost import weight
from carina_dra.cel.functions.overload import function, method, one_unit
from carina_dra.cel.types import BOOL, STRING, URL, list_of, map_of
from carina_dra.cel.values import Url, shown

_SCHEME: Final = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?P<rest>.*)", re.ASCII | re.DOTALL
)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_BAD_IN_HOST: Final = re.compile(r"[ #\\^`{|}]|%(?![0-9A-Fa-f]{2})")
_PORT: Final = re.compile(r"(?::[0-9]*)?", re.ASCII)
_SAFE_IN_PATH: Final = "/$&+,;=:@!'()*%~[]"


def _url(text: str) -> Url:
    """Parses an absolute URL or an absolute path.

    Raises:
        EvaluationError: the text is neither.
    """
    _parse(text, is_request=True)
    return _parse(text.partition("#")[0], is_request=False)


def _parse(text: str, *, is_request: bool) -> Url:
    """Parses as Go's `url.ParseRequestURI` or `url.Parse`, without the fragment.

    Only the latter takes `//host/path`; to the former, it is a path.
    """
    problem = EvaluationError(f"URL parse error during conversion from string: {shown(text)}")
    if not text or _CONTROL.search(text):
        raise problem
    match = _SCHEME.fullmatch(text)
    scheme, rest = (match["scheme"].lower(), match["rest"]) if match else ("", text)
    rest, _, query = rest.partition("?")
    pairs = tuple(_pairs(query))
    if text == "*" or (scheme and not rest.startswith("/")):
        return Url(scheme, "", "*" if text == "*" else "", pairs)
    if not rest.startswith("/"):
        raise problem
    host = ""
    has_host = bool(scheme) or (not is_request and not rest.startswith("///"))
    if has_host and rest.startswith("//"):
        authority, slash, path = rest[2:].partition("/")
        host, rest = authority.rpartition("@")[2], slash + path
        if not _is_host(host):
            raise problem
    if _BAD_ESCAPE.search(rest):
        raise problem
    return Url(scheme, host, rest, pairs)


def _is_host(host: str) -> bool:
    """Whether it is a host with an optional port."""
    if host.startswith("["):
        _, bracket, port = host.rpartition("]")
        return bool(bracket) and _PORT.fullmatch(port) is not None
    name, colon, port = host.partition(":")
    return not _BAD_IN_HOST.search(name) and _PORT.fullmatch(colon + port) is not None


def _pairs(query: str) -> Iterator[tuple[str, str]]:
    for pair in query.split("&"):
        if pair and ";" not in pair and not _BAD_ESCAPE.search(pair):
            name, _, value = pair.partition("=")
            yield unquote_plus(name), unquote_plus(value)


def is_url(text: str) -> bool:
    try:
        _parse(text, is_request=True)
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
    found: dict[str, list[str]] = {}
    for name, value in url.query:
        found.setdefault(name, []).append(value)
    return {name: tuple(values) for name, values in found.items()}


def _parsing(text: str) -> int:
    """The cost of parsing."""
    return 20 + len(text) + 20 * text.count("&")


def _escaping(url: Url) -> int:
    return 1 + 3 * len(url.path)


def _listing(url: Url) -> int:
    return 1 + 6 * weight(url)


OVERLOADS: Final = (
    function("url", (STRING,), URL, _url, lambda text: 2 * _parsing(text)),
    function("isURL", (STRING,), BOOL, is_url, _parsing),
    method("getScheme", (URL,), STRING, lambda url: url.scheme, one_unit),
    method("getHost", (URL,), STRING, lambda url: url.host, one_unit),
    method("getHostname", (URL,), STRING, _host_name, weight),
    method("getPort", (URL,), STRING, _port, weight),
    method(
        "getEscapedPath",
        (URL,),
        STRING,
        lambda url: quote(url.path, _SAFE_IN_PATH, errors="surrogatepass"),
        _escaping,
    ),
    method("getQuery", (URL,), map_of(STRING, list_of(STRING)), _query, _listing),
)
