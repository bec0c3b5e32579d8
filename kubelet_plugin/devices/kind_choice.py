"""In which ways each GPU of a node is offered: an administrator's choice.

The kinds of the node are for all of its GPUs. Rules say others for some GPUs: by minor number, by
UUID, or by a pattern of the product name. The first rule that names a GPU counts.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final, TypeAlias, assert_never

from kubelet_plugin.devices.kind import DeviceKind
from kubelet_plugin.inventory.gpu import Gpu

_UUID: Final = r"^GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z"
_PRODUCT_CHARACTERS: Final = 128
_WAYS: Final = ("minor", "uuid", "product")
_LISTED: Final = ", ".join(_WAYS)


@dataclass(frozen=True, slots=True)
class ByMinor:
    """The GPU with a minor number, as in `gpu-<minor>` and /dev/nvidia<minor>."""

    minor: int


@dataclass(frozen=True, slots=True)
class ByUuid:
    """The GPU with a UUID."""

    uuid: str


@dataclass(frozen=True, slots=True)
class ByProduct:
    """GPUs whose product name matches a pattern, such as "NVIDIA A100*"."""

    pattern: str


GpuChoice: TypeAlias = ByMinor | ByUuid | ByProduct
"""Some GPUs of a node."""


@dataclass(frozen=True, slots=True)
class KindRule:
    """The kinds of devices that are offered of some GPUs; none to withhold them."""

    gpus: GpuChoice
    kinds: frozenset[DeviceKind]


@dataclass(frozen=True, slots=True)
class KindChoice:
    """The kinds of devices that are offered of each GPU."""

    of_node: frozenset[DeviceKind]
    """For GPUs that no rule names."""
    rules: tuple[KindRule, ...] = ()

    def kinds(self, gpu: Gpu) -> frozenset[DeviceKind]:
        """Returns the kinds for a GPU."""
        return next((rule.kinds for rule in self.rules if _is_named(gpu, rule.gpus)), self.of_node)


def _is_named(gpu: Gpu, gpus: GpuChoice) -> bool:
    match gpus:
        case ByMinor(minor):
            return gpu.minor == minor
        case ByUuid(uuid):
            return gpu.uuid == uuid
        case ByProduct(pattern):
            return fnmatchcase(gpu.product_name or "", pattern)
    assert_never(gpus)


def parse_kind_rules(written: object) -> tuple[KindRule, ...]:
    """Reads rules from a list of objects with `kinds` and one of `minor`, `uuid` and `product`.

    Raises:
        ValueError: it is none; names the entry and the remedy.
    """
    if not isinstance(written, list):
        problem = f"must be a list, whose entries have kinds and one of {_LISTED}"
        raise ValueError(problem)  # noqa: TRY004 - pydantic reports ValueErrors
    rules = []
    for number, entry in enumerate(written, start=1):
        try:
            rules.append(_rule(entry))
        except ValueError as error:
            raise ValueError(f"entry {number} {error}") from None
    return tuple(rules)


def _rule(entry: object) -> KindRule:
    written = entry if isinstance(entry, Mapping) else {}
    unknown = sorted(str(key) for key in written if key not in (*_WAYS, "kinds"))
    if unknown:
        raise ValueError(f"has the unknown key {unknown[0]}; write kinds and one of {_LISTED}")
    named = [way for way in _WAYS if way in written]
    if len(named) != 1 or "kinds" not in written:
        raise ValueError(
            f"must have kinds and one of {_LISTED}; it has {', '.join(written) or 'neither'}"
        )
    return KindRule(_gpus(named[0], written[named[0]]), _kinds(written["kinds"]))


def _gpus(way: str, value: Any) -> GpuChoice:
    match way, value:
        case "minor", int() if not isinstance(value, bool) and value >= 0:
            return ByMinor(value)
        case "uuid", str() if re.match(_UUID, value):
            return ByUuid(value)
        case "product", str() if 0 < len(value) <= _PRODUCT_CHARACTERS:
            return ByProduct(value)
    allowed = {
        "minor": "a number, such as 0, the minor number of the GPU",
        "uuid": "a UUID as nvidia-smi -L shows it, such as GPU- and 36 characters",
        "product": f"a pattern of 1 to {_PRODUCT_CHARACTERS} characters, such as NVIDIA A100*",
    }
    raise ValueError(f"has {way} {value!r:.60}; write {allowed[way]}")


def _kinds(value: object) -> frozenset[DeviceKind]:
    if isinstance(value, list) and all(kind in list(DeviceKind) for kind in value):
        return frozenset(map(DeviceKind, value))
    raise ValueError(f"has kinds {value!r:.60}; write a list of some of {', '.join(DeviceKind)}")


def kind_rules_schema() -> dict[str, Any]:
    """Returns the JSON schema of what `parse_kind_rules` reads."""
    kinds = {"type": "array", "items": {"enum": list(map(str, DeviceKind))}}
    ways = {
        "minor": {"type": "integer", "minimum": 0},
        "uuid": {"type": "string", "pattern": _UUID},
        "product": {"type": "string", "minLength": 1, "maxLength": _PRODUCT_CHARACTERS},
    }
    entries = [
        {
            "type": "object",
            "properties": {way: schema, "kinds": kinds},
            "required": [way, "kinds"],
            "additionalProperties": False,
        }
        for way, schema in ways.items()
    ]
    return {"type": "array", "items": {"anyOf": entries}}
