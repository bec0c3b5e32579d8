"""Random cases for the allocator, in the format of the conformance vectors.

Small clusters with everything that allocation knows, about half of them with devices for their
claims. Where upstream 1.37.0 is known to be wrong, no case goes: no request with admin access comes
with counters, shared devices, or another request in the case.
"""

from collections.abc import Callable
from random import Random
from typing import Any, TypeAlias

Object: TypeAlias = dict[str, Any]

_DRIVERS = ("driver-a", "driver-b")
_DEFAULTS = (
    "DRAAdminAccess",
    "DRAPrioritizedList",
    "DRAPartitionableDevices",
    "DRADeviceTaints",
    "DRADeviceBindingConditions+DRAResourceClaimDeviceStatus",
    "DRAConsumableCapacity",
)
_ALPHAS = (
    "DRAListTypeAttributes",
    "DRAOptionalNodeOperations",
    "DRADerivedAttributes",
    "DRADeviceCompatibilityGroups",
    "DRAFractionalCapacityRange",
)
_NODES = ("allNodes", "nodeName", "nodeSelector")
_SELECTORS = (
    'device.attributes["{driver}"].model == "x"',
    'device.attributes["{driver}"].?size.orValue(0) >= 1',
    'device.capacity["{driver}"].?memory.orValue(quantity("0")).compareTo(quantity("4Gi")) >= 0',
    "!device.allowMultipleAllocations",
    'has(device.attributes["{driver}"].numa)',
)


def random_case(random: Random) -> Object:
    """A case."""
    return _Case(random).made()


class _Case:
    def __init__(self, random: Random) -> None:
        self._random = random
        alphas = [gate for gate in _ALPHAS if self._chance(0.35)] if self._chance(0.6) else []
        off = [gate for gate in _DEFAULTS if self._chance(0.04)]
        self._gates = [gate for gate in (*_DEFAULTS, *alphas) if gate not in off]
        self._with_admin = self._chance(0.08)
        self._slices: list[Object] = []
        self._devices: list[tuple[str, str, Object]] = []

    def made(self) -> Object:
        node = {
            "metadata": {"name": "node-1", "labels": {"zone": self._one_of("a", "b")}},
            "status": {
                "declaredFeatures": ["DRAOptionalNodeOperations"] if self._chance(0.5) else []
            },
        }
        for index in range(self._random.randint(2, 5)):
            self._pool(self._one_of(*_DRIVERS), f"pool-{index}")
        self._random.shuffle(self._slices)
        count = 1 if self._with_admin else self._random.choice([1, 1, 1, 1, 2, 3])
        claims = [self._claim(f"claim-{index}") for index in range(count)]
        dedicated, shared, consumed = self._in_use()
        return {
            "name": "random",
            "features": self._gates,
            "node": node,
            "classes": [self._class(name) for name in ("class-a", "class-b", "class-any")],
            "slices": self._slices,
            "claims": claims,
            "allocatedDevices": dedicated,
            "allocatedSharedDevices": shared,
            "consumedCapacity": consumed,
        }

    def _chance(self, part: float) -> bool:
        return self._random.random() < part

    def _one_of(self, *choices: Any) -> Any:
        return self._random.choice(choices)

    def _has(self, gate: str) -> bool:
        return gate in self._gates

    # Devices.

    def _pool(self, driver: str, name: str) -> None:
        kind = self._random.choice(["plain", "plain", "plain", "partitioned", "shared", "network"])
        if self._with_admin and kind in ("partitioned", "shared"):
            kind = "plain"
        make: Callable[[str, str], list[Object]] = {
            "plain": self._plain,
            "partitioned": self._partitioned,
            "shared": self._shareable,
            "network": self._network,
        }[kind]
        specs = make(driver, name)
        generation = self._random.randint(1, 3)
        missing = 1 if self._chance(0.06) else 0
        for index, spec in enumerate(specs):
            spec["driver"] = driver
            spec["pool"] = {
                "name": name,
                "generation": generation,
                "resourceSliceCount": len(specs) + missing,
            }
            self._add(f"{driver}-{name}-{index}", spec)
            for device in spec.get("devices", ()):
                self._devices.append((driver, name, device))
        if self._chance(0.1):
            stale = {**specs[0], "pool": {**specs[0]["pool"], "generation": generation - 1}}
            self._add(f"{driver}-{name}-stale", stale)
        if self._chance(0.05):
            newer = {**specs[0], "pool": {**specs[0]["pool"], "generation": generation + 1}}
            newer.pop("allNodes", None)
            newer.pop("nodeSelector", None)
            newer.pop("perDeviceNodeSelection", None)
            newer["devices"] = [
                {
                    k: v
                    for k, v in device.items()
                    if k not in ("allNodes", "nodeName", "nodeSelector")
                }
                for device in newer.get("devices", ())
            ]
            self._add(f"{driver}-{name}-newer", {**newer, "nodeName": "node-2"})

    def _add(self, name: str, spec: Object) -> None:
        if not spec.get("devices"):
            spec.pop("devices", None)
        self._slices.append({"metadata": {"name": name}, "spec": spec})

    def _where(self) -> Object:
        if self._chance(0.85):
            return {"nodeName": "node-1" if self._chance(0.9) else "node-2"}
        return self._network_nodes()

    def _network_nodes(self) -> Object:
        if self._chance(0.4):
            return {"allNodes": True}
        requirement = self._one_of(
            {"key": "zone", "operator": "In", "values": ["a"]},
            {"key": "zone", "operator": "NotIn", "values": ["a"]},
            {"key": "zone", "operator": "Exists"},
            {"key": "rack", "operator": "DoesNotExist"},
        )
        if self._chance(0.2):
            field = {"key": "metadata.name", "operator": "In", "values": ["node-1"]}
            return {"nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]}}
        return {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}}

    def _plain(self, driver: str, name: str) -> list[Object]:
        where = self._where()
        count = self._random.choice([1, 1, 2])
        skips = {}
        if self._has("DRAOptionalNodeOperations") and self._chance(0.2):
            skips = {"skipNodeOperations": self._one_of(["*"], ["NodeUnprepareResources"])}
        specs = []
        for index in range(count):
            devices = [
                self._device(driver, f"dev-{index}-{n}") for n in range(self._random.randint(1, 5))
            ]
            if self._chance(0.03):
                devices.append(dict(devices[0]))
            specs.append({**where, **skips, "devices": devices})
        return specs

    def _network(self, driver: str, name: str) -> list[Object]:
        devices = [self._device(driver, f"net-{n}") for n in range(self._random.randint(1, 3))]
        if self._chance(0.3):
            for device in devices:
                device.update(
                    self._one_of(
                        {"nodeName": "node-1"}, {"nodeName": "node-2"}, self._network_nodes()
                    )
                )
            return [{"perDeviceNodeSelection": True, "devices": devices}]
        for device in devices:
            if self._chance(0.2):
                device["bindsToNode"] = True
        return [{**self._network_nodes(), "devices": devices}]

    def _device(self, driver: str, name: str) -> Object:
        attributes: Object = {
            "model": {"string": self._one_of("x", "x", "y")},
            "size": {"int": self._random.randint(0, 2)},
        }
        if self._chance(0.8):
            attributes["numa"] = {"int": self._random.randint(0, 1)}
        if self._chance(0.5):
            attributes["shared.org/rack"] = {"string": self._one_of("r1", "r2")}
        if self._chance(0.3):
            attributes["ready"] = {"bool": self._chance(0.5)}
        if self._chance(0.3):
            attributes["version"] = {"version": self._one_of("1.0.0", "1.0.0", "2.0.0")}
        if self._has("DRAListTypeAttributes") and self._chance(0.5):
            values = self._random.sample(["p", "q", "r"], self._random.randint(1, 2))
            attributes["links"] = {"strings": values}
        device: Object = {"name": name, "attributes": attributes}
        if self._chance(0.7):
            device["capacity"] = {"memory": {"value": self._one_of("2Gi", "4Gi", "8Gi")}}
        if self._chance(0.2):
            device["taints"] = [
                {
                    "key": self._one_of("k1", "k2"),
                    "value": self._one_of("v1", "v2"),
                    "effect": self._one_of("NoSchedule", "NoExecute", "None"),
                }
            ]
        if self._chance(0.08):
            device["bindingConditions"] = ["ready"]
            device["bindingFailureConditions"] = ["failed"]
        return device

    def _partitioned(self, driver: str, name: str) -> list[Object]:
        where = self._where()
        sets = [
            {
                "name": f"gpu-{index}",
                "counters": {"memory": {"value": "8"}, "engines": {"value": "4"}},
            }
            for index in range(self._random.randint(1, 2))
        ]
        devices = []
        for counter_set in sets:
            for index in range(self._random.randint(2, 4)):
                device = self._device(driver, f"{counter_set['name']}-{index}")
                device.pop("bindingConditions", None)
                device.pop("bindingFailureConditions", None)
                consumption: Object = {
                    "counterSet": counter_set["name"],
                    "counters": {
                        "memory": {"value": str(self._random.choice([1, 2, 4, 8]))},
                        "engines": {"value": str(self._random.choice([1, 2]))},
                    },
                }
                if self._has("DRADeviceCompatibilityGroups") and self._chance(0.5):
                    groups = self._random.sample(["g1", "g2"], self._random.randint(1, 2))
                    consumption["compatibilityGroups"] = groups
                device["consumesCounters"] = [consumption]
                if self._chance(0.15):
                    device["allowMultipleAllocations"] = True
                devices.append(device)
        if self._chance(0.04):
            devices[0]["consumesCounters"][0]["counterSet"] = "gpu-9"
        return [{**where, "sharedCounters": sets}, {**where, "devices": devices}]

    def _shareable(self, driver: str, name: str) -> list[Object]:
        devices = []
        for index in range(self._random.randint(1, 3)):
            device = self._device(driver, f"share-{index}")
            device["allowMultipleAllocations"] = True
            device["capacity"] = {"memory": {"value": "10"}}
            if self._chance(0.6):
                device["capacity"]["memory"]["requestPolicy"] = self._policy()
            if self._chance(0.3):
                device["capacity"]["cores"] = {"value": "100"}
            devices.append(device)
        return [{**self._where(), "devices": devices}]

    def _policy(self) -> Object:
        if self._chance(0.4):
            return {"default": "2", "validValues": ["1", "2", "5"]}
        valid: Object = {"min": "2"}
        if self._chance(0.5):
            valid["max"] = "8"
        if self._chance(0.6):
            valid["step"] = "2"
        if self._has("DRAFractionalCapacityRange") and self._chance(0.5):
            valid = {"min": "500m", "step": "500m"}
        return {"default": "2", "validRange": valid}

    # Claims.

    def _class(self, name: str) -> Object:
        driver = {"class-a": "driver-a", "class-b": "driver-b"}.get(name)
        selectors = [{"cel": {"expression": f'device.driver == "{driver}"'}}] if driver else []
        config = []
        if name == "class-a":
            config = [{"opaque": {"driver": "driver-a", "parameters": {"of": "class-a"}}}]
        return {"metadata": {"name": name}, "spec": {"selectors": selectors, "config": config}}

    def _claim(self, name: str) -> Object:
        count = 1 if self._with_admin else self._random.choice([1, 1, 1, 2, 3])
        requests = [self._request(f"req-{index}") for index in range(count)]
        names = [request["name"] for request in requests]
        names += [
            f"{request['name']}/{each['name']}"
            for request in requests
            for each in request.get("firstAvailable", ())
        ]
        devices: Object = {"requests": requests}
        if self._chance(0.3):
            devices["constraints"] = [
                self._constraint(names, requests) for _ in range(self._random.choice([1, 1, 2]))
            ]
        if self._chance(0.3):
            devices["config"] = [
                {
                    "requests": self._some(names),
                    "opaque": {"driver": "driver-a", "parameters": {"of": f"{name}-{index}"}},
                }
                for index in range(self._random.randint(1, 2))
            ]
        return {"metadata": {"name": name, "namespace": "default"}, "spec": {"devices": devices}}

    def _some(self, names: list[str]) -> list[str]:
        return (
            []
            if self._chance(0.4)
            else self._random.sample(names, self._random.randint(1, len(names)))
        )

    def _constraint(self, names: list[str], requests: list[Object]) -> Object:
        driver = self._one_of(*_DRIVERS)
        attribute = self._one_of(
            f"{driver}/numa",
            f"{driver}/model",
            f"{driver}/size",
            f"{driver}/version",
            f"{driver}/links",
            "shared.org/rack",
        )
        derived = [
            each["name"]
            for request in requests
            for asked in (
                [request["exactly"]] if "exactly" in request else request["firstAvailable"]
            )
            for each in asked.get("derivedAttributes", ())
        ]
        if derived and self._chance(0.8):
            attribute = self._random.choice(derived)
        rule = self._one_of("matchAttribute", "matchAttribute", "distinctAttribute")
        return {"requests": self._some(names), rule: attribute}

    def _request(self, name: str) -> Object:
        if self._chance(0.2) and not self._with_admin:
            alternatives = [
                {"name": f"sub-{index}", **self._asked(prioritized=True)}
                for index in range(self._random.randint(1, 3))
            ]
            return {"name": name, "firstAvailable": alternatives}
        return {"name": name, "exactly": self._asked(prioritized=False)}

    def _asked(self, *, prioritized: bool) -> Object:
        name = self._one_of("class-a", "class-a", "class-b", "class-any")
        asked: Object = {"deviceClassName": name}
        if self._chance(0.01):
            asked["deviceClassName"] = "class-missing"
        if self._chance(0.1):
            asked["allocationMode"] = "All"
        else:
            asked["allocationMode"] = "ExactCount"
            asked["count"] = self._random.choice([1, 1, 1, 1, 1, 2, 3])
        if self._chance(0.25):
            driver = "driver-b" if name == "class-b" else "driver-a"
            expression = self._random.choice(_SELECTORS).format(driver=driver)
            asked["selectors"] = [{"cel": {"expression": expression}}]
        if self._chance(0.3):
            toleration = self._one_of(
                {"operator": "Exists"},
                {"key": "k1", "operator": "Exists", "effect": "NoSchedule"},
                {"key": "k1", "operator": "Equal", "value": "v1"},
            )
            asked["tolerations"] = [toleration]
        if self._chance(0.12) and not self._with_admin:
            asked["capacity"] = {
                "requests": {
                    self._one_of("memory", "memory", "memory", "cores"): self._one_of(
                        "1", "2", "3", "5", "1500m", "12"
                    )
                }
            }
        if self._has("DRADerivedAttributes") and self._chance(0.3):
            driver = "driver-b" if name == "class-b" else "driver-a"
            expression = self._one_of(
                f'device.attributes["{driver}"].?size.orValue(7) > 0',
                f'device.attributes["{driver}"].?model.orValue("none") + "!"',
            )
            asked["derivedAttributes"] = [{"name": "derived.org/it", "expression": expression}]
        if self._with_admin and not prioritized:
            asked["adminAccess"] = True
        return asked

    # What is in use.

    def _in_use(self) -> tuple[list[Object], list[Object], list[Object]]:
        dedicated: list[Object] = []
        shared: list[Object] = []
        consumed: list[Object] = []
        for driver, pool, device in self._devices:
            if not self._chance(0.15):
                continue
            named = {"driver": driver, "pool": pool, "device": device["name"]}
            if named in dedicated:
                continue
            if device.get("allowMultipleAllocations") and self._has("DRAConsumableCapacity"):
                share = {**named, "shareID": "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa"}
                shared.append(share)
                if "memory" in device.get("capacity", {}):
                    consumed.append({**named, "consumedCapacity": {"memory": "2"}})
            else:
                dedicated.append(named)
        return dedicated, shared, consumed
