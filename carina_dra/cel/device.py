"""The variable `device` of expressions."""

from carina_dra.cel.errors import EvaluationError
from carina_dra.cel.functions.quantities import semver
from carina_dra.cel.values import DomainMap, Value
from carina_dra.resource import (
    BoolAttribute,
    BoolsAttribute,
    Device,
    DeviceAttribute,
    IntAttribute,
    IntsAttribute,
    StringAttribute,
    StringsAttribute,
    UnknownAttribute,
    VersionAttribute,
    VersionsAttribute,
)

__all__ = ["CelDevice"]


class CelDevice:
    """The variable `device`. Its maps are built before the first evaluation.

    An attribute or capacity without a domain is in the driver's domain; if both forms of a name
    exist, the qualified one has precedence.
    """

    __slots__ = (
        "_device",
        "_problem",
        "allow_multiple_allocations",
        "attributes",
        "capacity",
        "driver",
    )

    attributes: DomainMap
    capacity: DomainMap

    def __init__(self, driver: str, device: Device) -> None:
        self.driver = driver
        self.allow_multiple_allocations = bool(device.allow_multiple_allocations)
        self._device: Device | None = device
        self._problem: str | None = None

    @classmethod
    def of(cls, driver: str, device: Device) -> "CelDevice":
        """A device that `driver` has published."""
        return cls(driver, device)

    @property
    def is_supported(self) -> bool:
        """Whether expressions can be evaluated for it: they support all its attributes."""
        device = self._device
        if device is None:
            return self._problem is None
        return all(map(_is_supported, device.attributes.values()))

    def make_ready(self) -> None:
        """Builds the maps of attributes and capacities.

        Raises:
            EvaluationError: the value of an attribute is not supported in expressions.
        """
        device = self._device
        if device is not None:
            attributes, capacity = DomainMap(), DomainMap()
            # Sorted, so that qualified names, which have a slash, overwrite the others.
            for name in sorted(device.attributes, key=_has_domain):
                try:
                    value = _value(device.attributes[name])
                except EvaluationError as error:
                    self._problem = self._problem or f"attribute {name}: {error}"
                    continue
                _put(attributes, self.driver, name, value)
            for name in sorted(device.capacity, key=_has_domain):
                _put(capacity, self.driver, name, device.capacity[name].value)
            self.attributes, self.capacity = attributes, capacity
            self._device = None
        if self._problem is not None:
            raise EvaluationError(self._problem)


def _has_domain(name: str) -> bool:
    return "/" in name


def _put(domains: DomainMap, driver: str, name: str, value: Value) -> None:
    domain, _, identifier = name.rpartition("/")
    domains.setdefault(domain or driver, {})[identifier] = value


def _value(attribute: DeviceAttribute) -> Value:
    match attribute:
        case IntAttribute(value=value) | BoolAttribute(value=value) | StringAttribute(value=value):
            return value
        case VersionAttribute(value=text):
            return _version(text)
        case (
            IntsAttribute(values=values)
            | BoolsAttribute(values=values)
            | StringsAttribute(values=values)
        ):
            return tuple(values)
        case VersionsAttribute(values=texts):
            return tuple(_version(text) for text in texts)
        case UnknownAttribute():
            raise EvaluationError("unsupported attribute value")


def _is_supported(attribute: DeviceAttribute) -> bool:
    # The attributes that most devices have are always supported.
    if isinstance(attribute, StringAttribute | IntAttribute | BoolAttribute):
        return True
    try:
        _value(attribute)
    except EvaluationError:
        return False
    return True


def _version(text: str) -> Value:
    try:
        return semver(text)
    except EvaluationError as error:
        raise EvaluationError(f"parse semantic version: {error}") from error
