"""YAML documents as values of JSON, read as Kubernetes reads them.

Values are built from the parser's events, without recursion: libyaml's own loader crashes the
process on deep nesting. Nesting and repetition by aliases are limited. Plain scalars have the types
that go.yaml.in/yaml/v2 gives them, with which the API server and kubectl read YAML (`resolve.go`).
"""

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, cast

import yaml

_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml is ten times as fast as Python; PyYAML may be installed without it."""
_Container: TypeAlias = "dict[str, Any] | list[Any]"

MAX_DEPTH: Final = 100
"""Nested maps and lists. Objects of the API have about 20, and the parameters of a driver."""
MAX_REPEATED: Final = 1_000_000
"""Values that aliases repeat in a document, so that a short text is not a huge object."""

_NOT_TEXT: Final = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NUMBERS: Final = frozenset("+-.0123456789")
"""What a plain scalar begins with that may be a number."""
_MAYBE_NO_STRING: Final = _NUMBERS | frozenset("~nNtTfFyYoO")
"""What a plain scalar begins with that may be another value than a string."""
_WORDS: Final = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(
        ("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True
    ),
    **dict.fromkeys(
        ("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False
    ),
}
_INT: Final = re.compile(
    r"(?P<sign>[-+]?)(?:0[bB](?P<b2>[01]+)|0[xX](?P<b16>[0-9a-fA-F]+)|0[oO]?(?P<b8>[0-7]+)"
    r"|(?P<b10>0|[1-9][0-9]*))"
)
_INT_DIGITS: Final = 64
"""Of a 64 bit number in any base."""
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NO_JSON: Final = re.compile(r"[-+]?\.(inf|Inf|INF|nan|NaN|NAN)")
_TAG: Final = "tag:yaml.org,2002:"
_CONTAINER_TAGS: Final = frozenset({None, "!", f"{_TAG}map", f"{_TAG}seq"})
_TYPES: Final[dict[str, tuple[type, ...]]] = {
    f"{_TAG}null": (type(None),),
    f"{_TAG}bool": (bool,),
    f"{_TAG}int": (int,),
    f"{_TAG}float": (int, float),
}


class DocumentError(ValueError):
    """A text is not a document. The message says where and why, in one line."""


def yaml_documents(text: str) -> Iterator[object]:
    """The documents of a text, in order.

    Raises:
        DocumentError: the next document is not valid YAML, is too deep, repeats too much, or has a
            value or key that JSON does not have.
    """
    refused = _NOT_TEXT.search(text)
    if refused:
        line = text.count("\n", 0, refused.start()) + 1
        raise DocumentError(
            f"line {line}: character U+{ord(refused.group()):04X} is not allowed; is this text?"
        )
    try:
        yield from _documents(yaml.parse(text, Loader=_LOADER))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        context = f", {error.context}" if error.context else ""
        at = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise DocumentError(f"{at}{error.problem}{context}") from None
    except yaml.YAMLError as error:
        raise DocumentError(" ".join(str(error).split())) from None


@dataclass(slots=True, eq=False)
class _Open:
    """A map or list that is being read."""

    container: _Container
    event: Any
    """Its start; None for the list that has the document's root."""
    size_before: int
    """Values of the document before it."""
    key: str | None = None
    """Of the next value, in a map."""
    merged: list[dict[str, Any]] = field(default_factory=list)
    """Maps that `<<` names: keys that the map does not have itself."""

    def wants_key(self) -> bool:
        return self.key is None and type(self.container) is dict

    def take_key(self, key: str, event: Any) -> None:
        if key in self.container:
            raise _error(event, f"the key {key!r:.80} occurs twice")
        self.key = key

    def add(self, value: Any, event: Any) -> None:
        container, key = self.container, self.key
        if isinstance(container, list):
            container.append(value)
        elif key == _MERGE:
            self.merged += _mappings(value, event)
        elif key is not None:
            container[key] = value
        self.key = None


@dataclass(frozen=True, slots=True)
class _Anchored:
    value: object
    size: int
    """The number of values in it, itself included."""


_UNFINISHED: Final = _Anchored(None, 0)
_MERGE: Final = "<<"


def _documents(events: Iterable[Any]) -> Iterator[object]:
    document = _Document()
    for event in events:
        kind = type(event)
        if kind is yaml.ScalarEvent:
            document.scalar(event)
        elif kind is yaml.MappingStartEvent:
            document.start(event, {})
        elif kind is yaml.SequenceStartEvent:
            document.start(event, [])
        elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
            document.end()
        elif kind is yaml.AliasEvent:
            document.alias(event)
        elif kind is yaml.DocumentStartEvent:
            document = _Document()
        elif kind is yaml.DocumentEndEvent:
            yield document.root


class _Document:
    """Builds a document from its events."""

    def __init__(self) -> None:
        self._roots: list[Any] = []
        self._top = _Open(self._roots, None, 0)
        self._below: list[_Open] = []
        self._anchors: dict[str, _Anchored] = {}
        self._size = 0
        self._repeated = 0

    @property
    def root(self) -> object:
        """The document, at its end."""
        return self._roots[0]

    def scalar(self, event: Any) -> None:
        value, top = event.value, self._top
        self._size += 1
        if top.wants_key():
            top.take_key(value, event)
        else:
            if event.tag is not None:
                value = _tagged(event)
            elif event.implicit[0] and (not value or value[0] in _MAYBE_NO_STRING):
                value = _plain(event)
            top.add(value, event)
        if event.anchor is not None:
            self._anchors[event.anchor] = _Anchored(value, 1)

    def start(self, event: Any, container: _Container) -> None:
        if event.tag not in _CONTAINER_TAGS:
            raise _error(event, f"the tag {event.tag} is not supported")
        if len(self._below) >= MAX_DEPTH:
            raise _error(event, f"nested more than {MAX_DEPTH} levels deep")
        if self._top.wants_key():
            raise _error(event, "a key is not a string")
        if event.anchor is not None:
            self._anchors[event.anchor] = _UNFINISHED
        self._below.append(self._top)
        self._top = _Open(container, event, self._size)
        self._size += 1

    def end(self) -> None:
        done = self._top
        self._top = self._below.pop()
        for merged in done.merged:
            for key, value in merged.items():
                cast("dict[str, Any]", done.container).setdefault(key, value)
        anchor = done.event.anchor
        if anchor is not None:
            self._anchors[anchor] = _Anchored(done.container, self._size - done.size_before)
        self._top.add(done.container, done.event)

    def alias(self, event: Any) -> None:
        anchored = self._anchors.get(event.anchor)
        if anchored is None:
            raise _error(event, f"the anchor &{event.anchor} does not exist")
        if anchored is _UNFINISHED:
            raise _error(event, f"the anchor &{event.anchor} contains itself")
        self._size += anchored.size
        self._repeated += anchored.size
        if self._repeated > MAX_REPEATED:
            raise _error(event, f"aliases repeat more than {MAX_REPEATED:,} values")
        if not self._top.wants_key():
            self._top.add(anchored.value, event)
        elif isinstance(anchored.value, str):
            self._top.take_key(anchored.value, event)
        else:
            raise _error(event, "a key is not a string")


def _mappings(value: object, event: Any) -> list[dict[str, Any]]:
    """The maps that `<<` names: one, or a list of them."""
    mappings: list[dict[str, Any]] = []
    for named in value if isinstance(value, list) else [value]:
        if not isinstance(named, dict):
            raise _error(event, "<< is not a map, or a list of maps")
        mappings.append(named)
    return mappings


def _tagged(event: Any) -> object:
    """A scalar with an explicit tag. Times are strings, as in JSON."""
    if event.tag in ("!", f"{_TAG}str", f"{_TAG}timestamp"):
        return event.value
    types = _TYPES.get(event.tag)
    if types is None:
        raise _error(event, f"the tag {event.tag} is not supported")
    value = _plain(event)
    if type(value) not in types:
        raise _error(event, f"{event.value!r:.80} is not {event.tag.removeprefix(_TAG)}")
    return value


def _plain(event: Any) -> object:
    """The value of a scalar without quotes."""
    text: str = event.value
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _NUMBERS:
        return text
    if _NO_JSON.fullmatch(text):
        raise _error(event, f"{text} is not a number of JSON")
    digits = text.replace("_", "")
    integer = _INT.fullmatch(digits)
    if integer and len(digits) <= _INT_DIGITS + 3:
        base, magnitude = next(
            (int(name[1:]), found)
            for name, found in integer.groupdict().items()
            if name != "sign" and found is not None
        )
        number = int(f"{integer['sign']}{magnitude}", base)
        if -(2**63) <= number < 2**64:
            return number
    if _FLOAT.fullmatch(digits):
        number_ = float(digits)
        if math.isfinite(number_):
            return number_
    return text


def _error(event: Any, problem: str) -> DocumentError:
    mark = event.start_mark
    return DocumentError(f"line {mark.line + 1}, column {mark.column + 1}: {problem}")
