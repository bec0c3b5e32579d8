"""Server-side apply: who owns which field, and what becomes of an object that somebody applies.

Fields are paths of FieldsV1 steps, `f:name` into an object and `k:{...}` to an item of a list whose
items have keys. A field is a leaf: a scalar, or a list or object that is taken as a whole.
https://kubernetes.io/docs/reference/using-api/server-side-apply/
Pure, and simpler than the real one: schemas are the names of LIST_KEYS.
"""

import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from carina_dra.kube.body import Body

FieldPath: TypeAlias = tuple[str, ...]
Fields: TypeAlias = frozenset[FieldPath]

LIST_KEYS: dict[str, tuple[str, ...]] = {
    "conditions": ("type",),
    "containers": ("name",),
    "devices": ("driver", "device", "pool"),
    "env": ("name",),
    "initContainers": ("name",),
    "ownerReferences": ("uid",),
    "ports": ("containerPort", "protocol"),
    "reservedFor": ("uid",),
    "resourceClaims": ("name",),
    "resourceClaimStatuses": ("name",),
    "volumeMounts": ("mountPath",),
    "volumes": ("name",),
}
"""Lists whose items are owned one by one, where all of them have these keys."""

_OF_THE_SERVER = frozenset(
    {
        ("f:apiVersion",),
        ("f:kind",),
        ("f:metadata", "f:creationTimestamp"),
        ("f:metadata", "f:deletionGracePeriodSeconds"),
        ("f:metadata", "f:deletionTimestamp"),
        ("f:metadata", "f:generateName"),
        ("f:metadata", "f:generation"),
        ("f:metadata", "f:name"),
        ("f:metadata", "f:namespace"),
        ("f:metadata", "f:resourceVersion"),
        ("f:metadata", "f:uid"),
    }
)
_ITEM = "."


@dataclass(frozen=True, slots=True)
class Manager:
    """Who owns fields: a name, the operation (Apply or Update), and through which subresource."""

    name: str
    operation: str
    subresource: str = ""


@dataclass(frozen=True, slots=True)
class FieldConflict(Exception):  # noqa: N818 - the API's word
    """Fields that an apply would change belong to others: each with the name of its owner."""

    owners: Mapping[FieldPath, str]


def applied(
    current: Body | None, configuration: Body, manager: Manager, *, force: bool, time: str
) -> Body:
    """The object after a manager has applied a configuration. Raises FieldConflict."""
    current = current or {}
    wanted = leaves(configuration)
    present = leaves(current)
    owners = owned(current)
    rivals = {
        path: other.name
        for other, fields in owners.items()
        if other != manager
        for path in fields
        if path in wanted and present.get(path) != wanted[path]
    }
    if rivals and not force:
        raise FieldConflict(rivals)
    result = _combined(current, configuration)
    remaining = {
        other: fields - rivals.keys() for other, fields in owners.items() if other != manager
    }
    for path in sorted(owners.get(manager, frozenset()) - wanted.keys()):  # items before fields
        if not any(path in fields for fields in remaining.values()):
            _remove(result, path)
    return _with_owners(result, remaining | {manager: frozenset(wanted)}, time)


def updated(before: Body | None, after: Body, manager: Manager, *, time: str) -> Body:
    """The object after a plain write, whose manager owns from now on what it has changed."""
    old, new = leaves(before or {}), leaves(after)
    changed = frozenset(path for path, value in new.items() if old.get(path, _ITEM) != value)
    owners = {
        other: (fields if other == manager else fields - changed) & new.keys()
        for other, fields in owned(before or {}).items()
    }
    owners[manager] = owners.get(manager, frozenset()) | changed
    return _with_owners(after, owners, time)


def leaves(body: Body) -> dict[FieldPath, Any]:
    """The fields of an object that can be owned, with their values."""
    bare = {name: value for name, value in body.items() if name != "metadata"}
    metadata = body.get("metadata") or {}
    bare["metadata"] = {name: v for name, v in metadata.items() if name != "managedFields"}
    found = dict(_leaves("", bare, ()))
    return {path: value for path, value in found.items() if path not in _OF_THE_SERVER}


def _leaves(name: str, value: Any, path: FieldPath) -> Iterator[tuple[FieldPath, Any]]:
    keys = _list_keys(name, value)
    if isinstance(value, dict) and value:
        for field, inner in value.items():
            yield from _leaves(field, inner, (*path, f"f:{field}"))
    elif keys:
        for item in value:
            step = _item_step(item, keys)
            yield (*path, step, _ITEM), None
            yield from _leaves("", item, (*path, step))
    elif path and value is not None and value != {}:
        yield path, value


def _list_keys(name: str, value: Any) -> tuple[str, ...]:
    """The keys of a list's items; empty where it is none or is owned as a whole."""
    keys = LIST_KEYS.get(name, ())
    if not keys or not isinstance(value, list):
        return ()
    keyed = all(isinstance(item, dict) and item.keys() >= set(keys) for item in value)
    return keys if value and keyed else ()


def _item_step(item: Body, keys: tuple[str, ...]) -> str:
    return "k:" + json.dumps({key: item[key] for key in keys}, separators=(",", ":"))


def _combined(target: Any, configuration: Any, name: str = "") -> Any:
    """The configuration laid over the target."""
    keys = _list_keys(name, configuration)
    if isinstance(configuration, dict) and isinstance(target, dict):
        result = dict(target)
        for field, value in configuration.items():
            result[field] = _combined(target.get(field), value, field)
        return result
    if keys and _list_keys(name, target) == keys:
        items = {_item_step(item, keys): item for item in target}
        for item in configuration:
            step = _item_step(item, keys)
            items[step] = _combined(items.get(step), item)
        return list(items.values())
    return copy.deepcopy(configuration)


def _remove(body: Body, path: FieldPath) -> None:
    """Removes a field, in copies of what is on the way, and objects that it leaves empty."""
    step, *rest = path
    name = step.removeprefix("f:")
    if name not in body:
        return
    if not rest:
        del body[name]
        return
    if rest[0].startswith("k:"):
        items = [dict(item) for item in body[name]]
        keys = LIST_KEYS.get(name, ())
        for item in items:
            if _item_step(item, keys) == rest[0]:
                if rest[1] == _ITEM:
                    items.remove(item)
                else:
                    _remove(item, tuple(rest[1:]))
                break
        body[name] = items
    else:
        body[name] = dict(body[name])
        _remove(body[name], tuple(rest))
    if not body[name]:
        del body[name]


def owned(body: Body) -> dict[Manager, Fields]:
    """Who owns what, as metadata.managedFields says."""
    entries = (body.get("metadata") or {}).get("managedFields") or []
    return {
        Manager(entry["manager"], entry["operation"], entry.get("subresource", "")): frozenset(
            _paths(entry["fieldsV1"], ())
        )
        for entry in entries
    }


def _paths(tree: Body, path: FieldPath) -> Iterator[FieldPath]:
    for step, inner in tree.items():
        if inner:
            yield from _paths(inner, (*path, step))
        else:
            yield (*path, step)


def _with_owners(body: Body, owners: Mapping[Manager, Fields], time: str) -> Body:
    before = owned(body)
    times = {
        (entry["manager"], entry["operation"], entry.get("subresource", "")): entry["time"]
        for entry in body["metadata"].get("managedFields") or []
    }
    entries = []
    for manager, fields in owners.items():
        if not fields:
            continue
        identity = (manager.name, manager.operation, manager.subresource)
        unchanged = before.get(manager) == fields
        entry: Body = {
            "manager": manager.name,
            "operation": manager.operation,
            "apiVersion": body["apiVersion"],
            "time": times[identity] if unchanged else time,
            "fieldsType": "FieldsV1",
            "fieldsV1": _tree(fields),
        }
        if manager.subresource:
            entry["subresource"] = manager.subresource
        entries.append(entry)
    return {**body, "metadata": {**body["metadata"], "managedFields": entries}}


def _tree(fields: Fields) -> Body:
    tree: Body = {}
    for path in sorted(fields):
        node = tree
        for step in path:
            node = node.setdefault(step, {})
    return tree
