"""A case, and which devices each request may have by itself."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from carina_dra.cel import CelDevice, CelError, compile_attribute, compile_selector
from carina_dra.resource import BoolAttribute, Device, StringAttribute, decode
from tests.model.capacity import consumed, nanos
from tests.model.pools import Key, ModelDevice, ModelPool, Object, PoolState, pools_of_node


@dataclass(frozen=True, eq=False)
class ModelAlternative:
    """One way to satisfy a request."""

    name: str
    """`req`, or `req/sub`."""
    request: str
    rank: int | None
    """Its index in firstAvailable."""
    body: Object

    @property
    def takes_all(self) -> bool:
        """Whether it asks for all matching devices."""
        return bool(self.body.get("allocationMode") == "All")

    @property
    def count(self) -> int:
        """The number of devices, of one that does not ask for all."""
        return int(self.body.get("count") or 1)

    @property
    def is_admin(self) -> bool:
        """Whether it has admin access."""
        return bool(self.body.get("adminAccess"))

    def is_meant_by(self, names: Sequence[str]) -> bool:
        """Whether a constraint for these requests includes it."""
        return not names or self.request in names or self.name in names


@dataclass(frozen=True, eq=False)
class ModelChoice:
    """A device for a request."""

    claim: int
    request: int
    alternative: ModelAlternative
    device: ModelDevice


class Problem:
    """A case of the conformance vectors, read."""

    def __init__(self, case: Object) -> None:
        self.gates = {gate for feature in case["features"] for gate in feature.split("+")}
        self.node: Object = case["node"]
        self.pools: list[ModelPool] = pools_of_node(case["slices"], self.node, self.gates)
        self.claims: list[Object] = case["claims"]
        self.requests: list[list[tuple[ModelAlternative, ...]]] = [
            [_alternatives(request) for request in claim["spec"]["devices"]["requests"]]
            for claim in self.claims
        ]
        self.dedicated: set[Key] = {_key(each) for each in case.get("allocatedDevices") or ()}
        self.shared: dict[Key, dict[str, int]] = {
            _key(each): {} for each in case.get("allocatedSharedDevices") or ()
        }
        for each in case.get("consumedCapacity") or ():
            amounts = self.shared.setdefault(_key(each), {})
            for name, text in each["consumedCapacity"].items():
                amounts[name] = amounts.get(name, 0) + nanos(text)
        self._classes = {each["metadata"]["name"]: each for each in case["classes"]}
        self._views: dict[Key, CelDevice] = {}
        self._refusals: dict[tuple[int, int], str | None] = {}

    @cached_property
    def devices(self) -> dict[Key, ModelDevice]:
        """The devices of pools that can be allocated from."""
        ready = [pool for pool in self.pools if pool.state is PoolState.READY]
        return {device.key: device for pool in ready for device in pool.devices}

    def is_shareable(self, device: ModelDevice) -> bool:
        """Whether the device is given out in shares."""
        allowed = bool(device.body.get("allowMultipleAllocations"))
        return allowed and "DRAConsumableCapacity" in self.gates

    def amounts(self, alternative: ModelAlternative, device: ModelDevice) -> dict[str, int] | None:
        """What the device's capacities lose to the request; None if it cannot be served."""
        return consumed(
            device.body.get("capacity") or {},
            (alternative.body.get("capacity") or {}).get("requests") or {},
            fractional="DRAFractionalCapacityRange" in self.gates,
        )

    def refusal(self, alternative: ModelAlternative, device: ModelDevice) -> str | None:
        """Why the request cannot have the device, whatever else is chosen; None if it can."""
        key = id(alternative), id(device)
        if key not in self._refusals:
            self._refusals[key] = (
                self._mismatch(alternative, device)
                or self._unsuitable(device)
                or self._in_use(alternative, device)
                or self._taint(alternative, device)
            )
        return self._refusals[key]

    def every(self, alternative: ModelAlternative) -> list[ModelDevice]:
        """The devices that a request for all must have."""
        return [
            device
            for device in self.devices.values()
            if self._mismatch(alternative, device) is None
        ]

    def attribute(
        self, alternative: ModelAlternative, device: ModelDevice, name: str
    ) -> Mapping[str, object] | None:
        """An attribute by its qualified name, derived or published."""
        for derived in alternative.body.get("derivedAttributes") or ():
            if derived["name"] == name:
                value = compile_attribute(derived["expression"]).evaluate(self._view(device))
                assert isinstance(value, BoolAttribute | StringAttribute), "as in the samples"
                return {"bool" if value.value in (True, False) else "string": value.value}
        return published_attribute(device, name)

    def _mismatch(self, alternative: ModelAlternative, device: ModelDevice) -> str | None:
        """Why the device is not one of those that the request describes."""
        if not device.is_usable:
            return "the device is for other nodes"
        if device.body.get("bindingConditions") and "DRADeviceBindingConditions" not in self.gates:
            return "binding conditions are disabled"
        of_class = self._classes[alternative.body["deviceClassName"]]["spec"]
        for selector in (
            *(of_class.get("selectors") or ()),
            *(alternative.body.get("selectors") or ()),
        ):
            expression = selector["cel"]["expression"]
            try:
                if not compile_selector(expression).matches(self._view(device)):
                    return f"not selected by {expression}"
            except CelError as error:
                return f"{expression}: {error}"
        if "DRAConsumableCapacity" in self.gates:
            amounts = self.amounts(alternative, device)
            if amounts is None:
                return "its capacities cannot serve the request"
            if any(
                amount > nanos(device.body["capacity"][name]["value"])
                for name, amount in amounts.items()
            ):
                return "too small"
        return None

    def _unsuitable(self, device: ModelDevice) -> str | None:
        """Why no request can have the device on this node."""
        if device.body.get("consumesCounters") and "DRAPartitionableDevices" not in self.gates:
            return "partitions are disabled"
        # Schedulers with none of these gates do not know the field.
        knows_skipping = self.gates & {
            "DRAListTypeAttributes",
            "DRAOptionalNodeOperations",
            "DRADerivedAttributes",
            "DRADeviceCompatibilityGroups",
        }
        if device.slice.get("skipNodeOperations") and knows_skipping:
            declared = (self.node.get("status") or {}).get("declaredFeatures") or ()
            gate = "DRAOptionalNodeOperations"
            if gate not in self.gates or gate not in declared:
                return "its node operations cannot be skipped"
        return None

    def _in_use(self, alternative: ModelAlternative, device: ModelDevice) -> str | None:
        if alternative.is_admin:
            return None
        if device.key in self.dedicated:
            return "in use"
        if device.key in self.shared and not self.is_shareable(device):
            return "shared by others"
        return None

    def _taint(self, alternative: ModelAlternative, device: ModelDevice) -> str | None:
        if "DRADeviceTaints" not in self.gates:
            return None
        tolerations = alternative.body.get("tolerations") or ()
        for taint in device.body.get("taints") or ():
            if taint["effect"] in ("NoSchedule", "NoExecute") and not any(
                _tolerates(toleration, taint) for toleration in tolerations
            ):
                return f"the taint {taint['key']} is not tolerated"
        return None

    def _view(self, device: ModelDevice) -> CelDevice:
        if device.key not in self._views:
            self._views[device.key] = CelDevice.of(device.key[0], decode(Device, device.body))
        return self._views[device.key]


def published_attribute(device: ModelDevice, name: str) -> Mapping[str, object] | None:
    """An attribute of the device; its own domain is the driver's."""
    attributes: dict[str, Object] = device.body.get("attributes") or {}
    domain, _, bare = name.rpartition("/")
    return attributes.get(name, attributes.get(bare) if domain == device.key[0] else None)


def _alternatives(request: Object) -> tuple[ModelAlternative, ...]:
    name = request["name"]
    if "exactly" in request:
        return (ModelAlternative(name, name, None, request["exactly"]),)
    return tuple(
        ModelAlternative(f"{name}/{body['name']}", name, rank, body)
        for rank, body in enumerate(request["firstAvailable"])
    )


def _tolerates(toleration: Object, taint: Object) -> bool:
    return (
        toleration.get("effect", taint["effect"]) == taint["effect"]
        and toleration.get("key", taint["key"]) == taint["key"]
        and (
            toleration.get("operator") == "Exists"
            or toleration.get("value", "") == taint.get("value", "")
        )
    )


def _key(device: Object) -> Key:
    return device["driver"], device["pool"], device["device"]
