"""Random resource pools as JSON: devices with everything that allocation knows about them.

A pool may be plain, partitioned by shared counters, shareable by capacity, or attached to a
network. Its slices may be those of one node or of two, all nodes, or the nodes of a selector; its
devices may name their nodes themselves. Some pools are stale, incomplete or invalid.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeAlias

from tests.samples.dice import Dice

Object: TypeAlias = dict[str, Any]

DRIVERS = ("driver-a", "driver-b")
ZONES = ("a", "b")
NVLINK_DOMAIN = "gpu.carina.dev/nvlinkDomain"
PCIE_ROOT = "resource.kubernetes.io/pcieRoot"
NUMA_NODE = "resource.kubernetes.io/numaNode"
_KINDS = ("plain", "plain", "plain", "partitioned", "partitioned", "shareable", "network", "spread")


class RandomPools:
    """Makes pools, with at most `most` devices in all of them together."""

    def __init__(
        self,
        dice: Dice,
        gates: Collection[str],
        *,
        most: int,
        kinds: Sequence[str] = _KINDS,
        nodes: Sequence[str] = ("node-1", "node-2"),
    ) -> None:
        """`nodes` are those that slices and devices name, the first of them most often."""
        self._dice = dice
        self._gates = gates
        self._left = most
        self._kinds = kinds
        self._nodes = nodes
        self._tainted = dice.one_of(0.0, 0.1, 0.25)
        locations = [NVLINK_DOMAIN, PCIE_ROOT, NUMA_NODE]
        self._locations = dice.some(locations) if dice.chance(0.7) else []

    def pool(self, driver: str, name: str) -> list[Object]:
        """The slices of a pool."""
        make: dict[str, Callable[[str], list[Object]]] = {
            "plain": self._plain,
            "partitioned": self._partitioned,
            "shareable": self._shareable,
            "network": self._network,
            "spread": self._over_two_nodes,
        }
        specs = make[self._dice.one_of(*self._kinds)](driver)
        generation = self._dice.between(1, 3)
        missing = 1 if self._dice.chance(0.03) else 0
        of_pool = {"name": name, "resourceSliceCount": len(specs) + missing}
        slices = []
        for index, spec in enumerate(specs):
            current = {**spec, "driver": driver, "pool": {**of_pool, "generation": generation}}
            slices.append(_slice(f"{driver}-{name}-{index}", current))
        first = slices[0]["spec"]
        if self._dice.chance(0.08):
            stale = {**first, "pool": {**of_pool, "generation": generation - 1}}
            slices.append(_slice(f"{driver}-{name}-stale", stale))
        if self._dice.chance(0.03):
            newer = {
                **_without_nodes(first),
                "nodeName": self._nodes[-1],
                "devices": [_without_nodes(device) for device in first.get("devices", ())],
                "pool": {**of_pool, "generation": generation + 1},
            }
            slices.append(_slice(f"{driver}-{name}-newer", newer))
        return slices

    # Nodes.

    def _where(self) -> Object:
        if self._dice.chance(0.85):
            first, *others = self._nodes
            return {"nodeName": first if self._dice.chance(0.9) else self._dice.one_of(*others)}
        return self._network_nodes()

    def _network_nodes(self) -> Object:
        if self._dice.chance(0.4):
            return {"allNodes": True}
        term: Object
        if self._dice.chance(0.2):
            field = {"key": "metadata.name", "operator": "In", "values": [self._nodes[0]]}
            term = {"matchFields": [field]}
        else:
            term = {
                "matchExpressions": [
                    self._dice.one_of(
                        {"key": "zone", "operator": "In", "values": ["a"]},
                        {"key": "zone", "operator": "NotIn", "values": ["a"]},
                        {"key": "zone", "operator": "Exists"},
                        {"key": "rack", "operator": "DoesNotExist"},
                    )
                ]
            }
        return {"nodeSelector": {"nodeSelectorTerms": [term]}}

    def _node_of_device(self) -> Object:
        named = {"nodeName": self._dice.one_of(*self._nodes)}
        return self._dice.one_of(named, named, {"nodeName": self._nodes[0]}, self._network_nodes())

    # Pools.

    def _plain(self, driver: str) -> list[Object]:
        where = {**self._where(), **self._skipped_operations()}
        specs = []
        for index in range(self._dice.one_of(1, 1, 2)):
            devices = self._devices(driver, f"dev-{index}", 1, 5)
            if devices and self._dice.chance(0.02):
                devices.append(dict(devices[0]))
            specs.append({**where, "devices": devices})
        return specs

    def _shareable(self, driver: str) -> list[Object]:
        devices = self._devices(driver, "share", 1, 3)
        for device in devices:
            self._make_shareable(device)
        return [{**self._where(), "devices": devices}]

    def _network(self, driver: str) -> list[Object]:
        devices = self._devices(driver, "net", 1, 3)
        if self._dice.chance(0.3):
            for device in devices:
                device.update(self._node_of_device())
            return [{"perDeviceNodeSelection": True, "devices": devices}]
        for device in devices:
            if self._dice.chance(0.2):
                device["bindsToNode"] = True
        return [{**self._network_nodes(), "devices": devices}]

    def _partitioned(self, driver: str) -> list[Object]:
        where = self._where()
        counters = self._counter_sets()
        devices = self._partitions(driver, "part", counters)
        if self._dice.chance(0.25):
            for device in devices:
                device.update(self._node_of_device())
            where = {"perDeviceNodeSelection": True}
            return [{"allNodes": True, "sharedCounters": counters}, {**where, "devices": devices}]
        return [{**where, "sharedCounters": counters}, {**where, "devices": devices}]

    def _over_two_nodes(self, driver: str) -> list[Object]:
        """A pool with slices of two nodes, whose devices may consume the same counters."""
        first, second = self._nodes[0], self._dice.one_of(*self._nodes[1:])
        specs: list[Object] = []
        if self._dice.chance(0.8):
            counters = self._counter_sets()
            specs.append(
                {**self._dice.one_of({"allNodes": True}, {"nodeName": second}), "devices": []}
            )
            specs[0]["sharedCounters"] = counters
            of_first = self._partitions(driver, "here", counters)
            of_second = self._partitions(driver, "there", counters)
        else:
            of_first = self._devices(driver, "here", 1, 3)
            of_second = self._devices(driver, "there", 1, 2)
        specs.append({"nodeName": first, "devices": of_first})
        specs.append({"nodeName": second, "devices": of_second})
        return specs

    # Devices.

    def _devices(self, driver: str, prefix: str, least: int, most: int) -> list[Object]:
        count = min(self._left, self._dice.between(least, most))
        self._left -= count
        return [self._device(driver, f"{prefix}-{index}") for index in range(count)]

    def _device(self, driver: str, name: str) -> Object:
        device: Object = {"name": name, "attributes": self._attributes()}
        if self._dice.chance(0.7):
            device["capacity"] = {"memory": {"value": self._dice.one_of("2Gi", "4Gi", "8Gi")}}
        if self._dice.chance(self._tainted):
            taint = {
                "key": self._dice.one_of("k1", "k2"),
                "value": self._dice.one_of("v1", "v2"),
                "effect": self._dice.one_of("NoSchedule", "NoExecute", "None"),
            }
            device["taints"] = [taint]
        if self._dice.chance(0.08):
            device["bindingConditions"] = ["ready"]
            device["bindingFailureConditions"] = ["failed"]
        return device

    def _attributes(self) -> Object:
        attributes: Object = {
            "model": {"string": self._dice.one_of("x", "x", "y")},
            "size": {"int": self._dice.between(0, 2)},
        }
        if self._dice.chance(0.8):
            attributes["numa"] = {"int": self._dice.between(0, 1)}
        if self._dice.chance(0.5):
            attributes["shared.org/rack"] = {"string": self._dice.one_of("r1", "r2")}
        if self._dice.chance(0.3):
            attributes["ready"] = {"bool": self._dice.chance(0.5)}
        if self._dice.chance(0.3):
            attributes["version"] = {"version": self._dice.one_of("1.0.0", "1.0.0", "2.0.0")}
        if self._dice.chance(0.3):
            attributes["uuid"] = {"string": f"u-{self._dice.between(0, 9)}"}
        if self._has("DRAListTypeAttributes") and self._dice.chance(0.5):
            attributes["links"] = {"strings": self._dice.some(["p", "q", "r"])[:2]}
        socket = self._dice.between(0, 1)
        location = {
            NVLINK_DOMAIN: {"string": f"nv-{self._dice.between(0, 1)}"},
            PCIE_ROOT: {"string": f"pci-{socket}-{self._dice.between(0, 1)}"},
            NUMA_NODE: {"int": socket},
        }
        for name in self._locations:
            if self._dice.chance(0.9):
                attributes[name] = location[name]
        if (
            PCIE_ROOT in attributes
            and self._has("DRAListTypeAttributes")
            and self._dice.chance(0.2)
        ):
            attributes[PCIE_ROOT] = {"strings": self._dice.some(["pci-0-0", "pci-0-1", "pci-1-0"])}
        return attributes

    def _skipped_operations(self) -> Object:
        if self._has("DRAOptionalNodeOperations") and self._dice.chance(0.2):
            return {"skipNodeOperations": self._dice.one_of(["*"], ["NodeUnprepareResources"])}
        return {}

    def _counter_sets(self) -> list[Object]:
        counters = {"memory": {"value": "8"}, "engines": {"value": "4"}}
        count = self._dice.between(1, 2)
        sets = [{"name": f"gpu-{index}", "counters": counters} for index in range(count)]
        if self._dice.chance(0.01):
            sets.append(sets[0])
        return sets

    def _partitions(self, driver: str, prefix: str, counters: list[Object]) -> list[Object]:
        devices = self._devices(driver, prefix, 2, 6)
        for device in devices:
            if self._dice.chance(0.05):
                continue
            drawn = [self._dice.one_of(*counters)]
            if self._dice.chance(0.25):
                drawn = counters[:2]
            device["consumesCounters"] = [self._consumption(one["name"]) for one in drawn]
            if self._dice.chance(0.15):
                self._make_shareable(device)
        if devices and self._dice.chance(0.02):
            devices[0]["consumesCounters"] = [self._consumption("gpu-9")]
        return devices

    def _consumption(self, counter_set: str) -> Object:
        memory, engines = self._dice.one_of(1, 2, 4, 8), self._dice.one_of(1, 2)
        consumption: Object = {
            "counterSet": counter_set,
            "counters": {"memory": {"value": str(memory)}, "engines": {"value": str(engines)}},
        }
        if self._has("DRADeviceCompatibilityGroups") and self._dice.chance(0.5):
            consumption["compatibilityGroups"] = self._dice.some(["g1", "g2"])
        return consumption

    def _make_shareable(self, device: Object) -> None:
        device["allowMultipleAllocations"] = True
        device["capacity"] = {"memory": {"value": "10"}}
        if self._dice.chance(0.6):
            device["capacity"]["memory"]["requestPolicy"] = self._request_policy()
        if self._dice.chance(0.3):
            device["capacity"]["cores"] = {"value": "100"}

    def _request_policy(self) -> Object:
        if self._dice.chance(0.4):
            return {"default": "2", "validValues": ["1", "2", "5"]}
        valid: Object = {"min": "2"}
        if self._dice.chance(0.5):
            valid["max"] = "8"
        if self._dice.chance(0.6):
            valid["step"] = "2"
        if self._has("DRAFractionalCapacityRange") and self._dice.chance(0.5):
            valid = {"min": "500m", "step": "500m"}
        return {"default": "2", "validRange": valid}

    def _has(self, gate: str) -> bool:
        return gate in self._gates


def _slice(name: str, spec: Object) -> Object:
    if not spec.get("devices"):
        spec = {key: value for key, value in spec.items() if key != "devices"}
    return {"metadata": {"name": name}, "spec": spec}


def _without_nodes(of: Object) -> Object:
    """A slice or device without the nodes that it names."""
    nodes = ("allNodes", "nodeName", "nodeSelector", "perDeviceNodeSelection")
    return {name: value for name, value in of.items() if name not in nodes}
