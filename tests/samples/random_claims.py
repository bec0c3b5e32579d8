"""Random claims and device classes as JSON, for the devices of `random_pools`."""

from collections.abc import Collection

from tests.samples.dice import Dice
from tests.samples.random_pools import DRIVERS, NUMA_NODE, PCIE_ROOT, Object

_SELECTORS = (
    'device.attributes["{driver}"].?model.orValue("x") == "x"',
    'device.attributes["{driver}"].?size.orValue(0) >= 1',
    'device.capacity["{driver}"].?memory.orValue(quantity("0")).compareTo(quantity("4Gi")) >= 0',
    "!device.allowMultipleAllocations",
    'has(device.attributes["{driver}"].numa)',
    'device.attributes["resource.kubernetes.io"].?numaNode.orValue(0) == 0',
    'device.attributes["{driver}"].?uuid.orValue("u-5") < "u-7"',
)
_FAILING_SELECTORS = (
    'device.attributes["{driver}"].numa == 0',
    'device.attributes["{driver}"].model == "x"',
)
"""They fail on devices without the attribute."""
CLASSES = ("class-a", "class-b", "class-any")


def device_class(name: str) -> Object:
    """One of `CLASSES`: the devices of a driver, or any."""
    driver = {"class-a": "driver-a", "class-b": "driver-b"}.get(name)
    selectors = [{"cel": {"expression": f'device.driver == "{driver}"'}}] if driver else []
    config = []
    if name == "class-a":
        config = [{"opaque": {"driver": "driver-a", "parameters": {"of": "class-a"}}}]
    return {"metadata": {"name": name}, "spec": {"selectors": selectors, "config": config}}


class RandomClaims:
    """Makes claims, with at most `most` requests, and about one device more than requests."""

    def __init__(
        self, dice: Dice, gates: Collection[str], *, most: int, admin: float, failing: float
    ) -> None:
        """`admin` and `failing` are the parts of requests with admin access, and of selectors
        that fail on some devices.
        """
        self._dice = dice
        self._gates = gates
        self._requests_left = most
        self._devices_left = most + 1
        self._admin = admin
        self._failing = failing

    def claim(self, name: str) -> Object:
        """A claim in the namespace `default`."""
        count = max(1, min(self._requests_left, self._dice.one_of(1, 1, 1, 2, 3)))
        self._requests_left -= count
        requests = [self._request(f"req-{index}") for index in range(count)]
        names = [request["name"] for request in requests]
        names += [
            f"{request['name']}/{alternative['name']}"
            for request in requests
            for alternative in request.get("firstAvailable", ())
        ]
        devices: Object = {"requests": requests}
        if self._dice.chance(0.3):
            devices["constraints"] = [
                self._constraint(names, requests) for _ in range(self._dice.one_of(1, 1, 2))
            ]
        if self._dice.chance(0.3):
            devices["config"] = [
                {
                    "requests": self._any_or_some(names),
                    "opaque": {"driver": "driver-a", "parameters": {"of": f"{name}-{index}"}},
                }
                for index in range(self._dice.between(1, 2))
            ]
        return {"metadata": {"name": name, "namespace": "default"}, "spec": {"devices": devices}}

    def _any_or_some(self, names: list[str]) -> list[str]:
        return [] if self._dice.chance(0.4) else self._dice.some(names)

    def _constraint(self, names: list[str], requests: list[Object]) -> Object:
        driver = self._dice.one_of(*DRIVERS)
        attribute = self._dice.one_of(
            f"{driver}/numa",
            f"{driver}/model",
            f"{driver}/size",
            f"{driver}/version",
            f"{driver}/links",
            "shared.org/rack",
            NUMA_NODE,
            PCIE_ROOT,
        )
        derived = [
            attribute["name"]
            for request in requests
            for asked in request.get("firstAvailable", [request.get("exactly", {})])
            for attribute in asked.get("derivedAttributes", ())
        ]
        if derived and self._dice.chance(0.8):
            attribute = self._dice.one_of(*derived)
        rule = self._dice.one_of("matchAttribute", "matchAttribute", "distinctAttribute")
        return {"requests": self._any_or_some(names), rule: attribute}

    def _request(self, name: str) -> Object:
        if self._dice.chance(0.3):
            alternatives = [self._asked() for _ in range(self._dice.between(1, 3))]
            self._devices_left -= max(asked.get("count", 1) for asked in alternatives)
            named = [{"name": f"sub-{index}", **asked} for index, asked in enumerate(alternatives)]
            return {"name": name, "firstAvailable": named}
        asked = self._asked()
        self._devices_left -= asked.get("count", 1)
        if self._dice.chance(self._admin):
            asked["adminAccess"] = True
        return {"name": name, "exactly": asked}

    def _asked(self) -> Object:
        name = self._dice.one_of("class-a", "class-b", "class-any", "class-any")
        driver = "driver-b" if name == "class-b" else "driver-a"
        asked: Object = {"deviceClassName": name}
        if self._dice.chance(0.003):
            asked["deviceClassName"] = "class-missing"
        if self._dice.chance(0.12):
            asked["allocationMode"] = "All"
        else:
            asked["allocationMode"] = "ExactCount"
            wanted = self._dice.one_of(1, 1, 1, 1, 2, 2, 3)
            asked["count"] = max(1, min(self._devices_left, wanted))
        if self._dice.chance(0.2):
            failing = self._dice.chance(self._failing)
            expression = self._dice.one_of(*(_FAILING_SELECTORS if failing else _SELECTORS))
            asked["selectors"] = [{"cel": {"expression": expression.format(driver=driver)}}]
        if self._dice.chance(0.3):
            toleration = self._dice.one_of(
                {"operator": "Exists"},
                {"key": "k1", "operator": "Exists", "effect": "NoSchedule"},
                {"key": "k1", "operator": "Equal", "value": "v1"},
            )
            asked["tolerations"] = [toleration]
        if self._dice.chance(0.12):
            capacity = self._dice.one_of("memory", "memory", "memory", "cores")
            amount = self._dice.one_of("1", "2", "3", "5", "1500m", "12")
            asked["capacity"] = {"requests": {capacity: amount}}
        if "DRADerivedAttributes" in self._gates and self._dice.chance(0.3):
            expression = self._dice.one_of(
                f'device.attributes["{driver}"].?size.orValue(7) > 0',
                f'device.attributes["{driver}"].?model.orValue("none") + "!"',
            )
            asked["derivedAttributes"] = [{"name": "derived.org/it", "expression": expression}]
        return asked
