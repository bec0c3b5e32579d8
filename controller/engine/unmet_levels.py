"""Levels of enforcement that the claims of a group demand, and that devices do not have.

A class or a claim demands levels in a ShareConfig, which only the node reads, and selects devices
by the attributes of the levels (docs/enforcement.md). This says which of them keep a group waiting,
or will. What it reads is bounded, since tenants write it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from carina_dra.config.device import DeviceConfigError, ShareConfig
from carina_dra.config.enforcement import (
    CORE_ATTRIBUTES,
    MEMORY_ATTRIBUTES,
    LackingLevel,
    Levels,
)
from carina_dra.config.reading import parse_device_config
from carina_dra.resource import (
    BoolAttribute,
    DeviceClass,
    DeviceSelector,
    DeviceSubRequest,
    ExactDeviceRequest,
    Exactly,
    FirstAvailable,
    ResourceClaim,
    ResourceSlice,
    lookup,
)
from controller.engine.model.snapshot import Snapshot

_CLAIMS: Final = 64
"""The most claims of a group that are read. Those of one template are alike."""
_NOTES: Final = 8
"""The most that is said about a group."""
_ATTRIBUTES: Final = (*MEMORY_ATTRIBUTES.values(), *CORE_ATTRIBUTES.values())


def unmet_levels(snapshot: Snapshot, claims: Iterable[str]) -> tuple[str, ...]:
    """Returns what the claims demand that devices do not have, in words; `claims` are keys."""
    by_key = {claim.key: claim for claim in snapshot.claims}
    known = (by_key[key] for key in dict.fromkeys(claims) if key in by_key)
    waiting = (claim for claim in known if claim.status.allocation is None)
    classes = {found.metadata.name: found for found in snapshot.classes}
    driver = snapshot.settings.driver
    asked = [ask for claim in islice(waiting, _CLAIMS) for ask in _asks(claim, classes, driver)]
    if not any(ask.levels or ask.read for ask in asked):
        return ()
    having, devices = _having(snapshot.slices, driver)
    said: dict[tuple[str, str], str] = {}
    for ask in asked:
        for attribute, words in _problems(ask, having, devices, driver):
            said.setdefault((ask.request, attribute), f"claim {ask.claim}, {ask.request}: {words}")
    return tuple(islice(said.values(), _NOTES))


@dataclass(frozen=True, slots=True)
class _Ask:
    """What one way to satisfy a request demands."""

    claim: str
    request: str
    """With its class, for people."""
    levels: tuple[LackingLevel, ...]
    """The levels that configurations demand."""
    read: tuple[str, ...]
    """The attributes of levels that the selectors read."""


def _asks(claim: ResourceClaim, classes: Mapping[str, DeviceClass], driver: str) -> Iterator[_Ask]:
    for request in claim.spec.devices.requests:
        alternatives: Sequence[tuple[str, ExactDeviceRequest | DeviceSubRequest]] = ()
        match request.wants:
            case Exactly(exactly):
                alternatives = ((request.name, exactly),)
            case FirstAvailable(subrequests):
                alternatives = tuple((f"{request.name}/{sub.name}", sub) for sub in subrequests)
            case None:
                pass
        for name, wanted in alternatives:
            device_class = classes.get(wanted.device_class_name)
            spec = None if device_class is None else device_class.spec
            written = [] if spec is None else [config.opaque for config in spec.config]
            written += [
                config.opaque
                for config in claim.spec.devices.config
                if not config.requests or not {name, request.name}.isdisjoint(config.requests)
            ]
            parameters = (found.parameters for found in written if found and found.driver == driver)
            yield _Ask(
                claim.key,
                f"request {name} of class {wanted.device_class_name}",
                tuple(_demanded(parameters)),
                _read((*(() if spec is None else spec.selectors), *wanted.selectors)),
            )


def _demanded(configurations: Iterable[Mapping[str, object]]) -> Iterator[LackingLevel]:
    """The levels that the configurations demand, as a device lacks them that has none."""
    for parameters in configurations:
        try:
            config = parse_device_config("", parameters)
        except DeviceConfigError:
            continue  # the node refuses it, whatever it demands
        if isinstance(config, ShareConfig):
            yield from Levels().lacking(config.enforcement.memory, config.enforcement.cores)


def _read(selectors: Iterable[DeviceSelector]) -> tuple[str, ...]:
    texts = [selector.cel.expression for selector in selectors if selector.cel is not None]
    return tuple(name for name in _ATTRIBUTES if any(name in text for text in texts))


def _having(slices: Iterable[ResourceSlice], driver: str) -> tuple[Mapping[str, int], int]:
    """How many shared devices have each level, by its attribute, and how many there are."""
    having = dict.fromkeys(_ATTRIBUTES, 0)
    devices = 0
    for published in slices:
        if published.spec.driver != driver:
            continue
        for device in published.spec.devices:
            found = [lookup(device.attributes, f"{driver}/{name}", driver) for name in _ATTRIBUTES]
            devices += any(attribute is not None for attribute in found)
            for name, attribute in zip(_ATTRIBUTES, found, strict=True):
                having[name] += isinstance(attribute, BoolAttribute) and attribute.value
    return having, devices


def _problems(
    ask: _Ask, having: Mapping[str, int], devices: int, driver: str
) -> Iterator[tuple[str, str]]:
    """What is demanded and not there, by the attribute of the level."""
    for level in ask.levels:
        there = having[level.attribute]
        demand = f"a ShareConfig demands {level.level} for {level.amount}"
        if not there:
            yield level.attribute, f"{demand}, and no device has {level.attribute}: true"
        elif there < devices and level.attribute not in ask.read:
            words = (
                f"{demand}, which {there} of {devices} devices have, and no selector reads "
                f"{level.attribute}, so it can be allocated a device that it is refused; select "
                f"devices by device.attributes['{driver}'].{level.attribute}"
            )
            yield level.attribute, words
    for attribute in ask.read:
        if not having[attribute]:
            yield attribute, f"a selector reads {attribute}, which is true for no device"
