"""Label and field selectors of lists and watches.

https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#api
"""

import re
from collections.abc import Callable, Mapping
from typing import TypeAlias

from carina_dra.kube.body import Body
from simulation.api_server.failure import bad_request
from simulation.api_server.resources import Path, value_at

Predicate: TypeAlias = Callable[[Body], bool]

_SET = re.compile(r"^(?P<key>\S+)\s+(?P<operator>in|notin)\s*\((?P<values>[^)]*)\)$")
_EQUALITY = re.compile(r"^(?P<key>[^\s=!]+)\s*(?P<operator>==|=|!=)\s*(?P<value>[^\s=!]*)$")
_EXISTENCE = re.compile(r"^(?P<negation>!?)\s*(?P<key>[^\s=!]+)$")
_COMMA = re.compile(r",(?![^(]*\))")  # not within parentheses

_COMMON_FIELDS: dict[str, Path] = {
    "metadata.name": ("metadata", "name"),
    "metadata.namespace": ("metadata", "namespace"),
}


def selector(labels: str, fields: str, selectable: Mapping[str, Path]) -> Predicate:
    """A predicate for objects that match both selectors. Raises Failure for an invalid one."""
    terms = [_label_term(term.strip()) for term in _COMMA.split(labels) if term.strip()]
    known = _COMMON_FIELDS | dict(selectable)
    terms += [_field_term(term.strip(), known) for term in fields.split(",") if term.strip()]
    return lambda body: all(term(body) for term in terms)


def _label_term(term: str) -> Predicate:
    if match := _SET.match(term):
        values = {value.strip() for value in match["values"].split(",")}
        return _label(match["key"], values, negated=match["operator"] == "notin")
    if match := _EQUALITY.match(term):
        return _label(match["key"], {match["value"]}, negated=match["operator"] == "!=")
    if match := _EXISTENCE.match(term):
        key, wanted = match["key"], not match["negation"]
        return lambda body: (key in _labels(body)) is wanted
    raise bad_request(f"unable to parse requirement: {term}")


def _label(key: str, values: set[str], *, negated: bool) -> Predicate:
    return lambda body: (_labels(body).get(key) in values) is not negated


def _labels(body: Body) -> Mapping[str, str]:
    labels: Mapping[str, str] = body["metadata"].get("labels") or {}
    return labels


def _field_term(term: str, known: Mapping[str, Path]) -> Predicate:
    match = _EQUALITY.match(term)
    if match is None:
        raise bad_request(f"invalid selector: {term!r}; can't understand {term!r}")
    path = known.get(match["key"])
    if path is None:
        names = ", ".join(f'"{name}"' for name in known)
        raise bad_request(f'"{match["key"]}" is not a known field selector: only {names}')
    value, negated = match["value"], match["operator"] == "!="

    def matches(body: Body) -> bool:
        found = value_at(body, path)
        text = "" if found is None else str(found).lower() if found is True else str(found)
        return (text == value) is not negated

    return matches
