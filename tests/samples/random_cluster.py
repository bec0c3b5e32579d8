"""Random clusters as JSON: the objects of several nodes, and the events that change them.

Pools come, change and go, on one node, on several or on all; some nodes have the same devices in
another order. Taint rules, node labels and claims change, also those of other allocators.
"""

from collections.abc import Callable
from copy import deepcopy
from random import Random

from tests.samples.allocator_cases import random_gates
from tests.samples.dice import Dice
from tests.samples.random_claims import CLASSES, RandomClaims, device_class
from tests.samples.random_pools import DRIVERS, ZONES, Object, RandomPools

_NODES = ("node-1", "node-2", "node-3", "node-4", "node-5")
_POOLS = ("pool-0", "pool-1", "pool-2", "pool-3", "pool-4", "pool-5")


class RandomCluster:
    """The objects of a cluster by name, and how they change."""

    def __init__(self, random: Random) -> None:
        self._dice = Dice(random)
        self.gates = random_gates(self._dice)
        self.nodes: dict[str, Object] = {}
        self.slices: dict[str, Object] = {}
        self.rules: dict[str, Object] = {}
        self.claims: dict[str, Object] = {}
        """Those with an allocation in their status."""
        self.classes = [device_class(name) for name in CLASSES]
        self._asked = 0
        for name in _NODES[: self._dice.between(2, len(_NODES))]:
            self._put_node(name)
        for _ in range(4):
            self._change_pool()

    def change(self) -> None:
        """Something happens."""
        events: list[Callable[[], None]] = [
            *[self._change_pool] * 4,
            *[self._copy_devices] * 3,
            *[self._release] * 3,
            *[self._take_devices] * 2,
            *[self._change_rule] * 2,
            *[self._change_node] * 2,
            self._remove_slice,
        ]
        self._dice.one_of(*events)()

    def ask(self) -> list[Object]:
        """New claims of one pod, not yet allocated."""
        claims = RandomClaims(self._dice, self.gates, most=3, admin=0.05, failing=0.1)
        self._asked += 1
        count = self._dice.one_of(1, 1, 2)
        return [claims.claim(f"claim-{self._asked}-{index}") for index in range(count)]

    def allocate(self, claim: Object, allocation: Object) -> None:
        """A claim has an allocation."""
        allocated = {**claim, "status": {"allocation": allocation}}
        self.claims[claim["metadata"]["name"]] = allocated

    def case(self, node: str, claims: list[Object]) -> Object:
        """The claims on one node, in the format of the conformance vectors."""
        dedicated: list[Object] = []
        shared: list[Object] = []
        consumed: list[Object] = []
        for claim in self.claims.values():
            for result in claim["status"]["allocation"]["devices"]["results"]:
                device = {name: result[name] for name in ("driver", "pool", "device")}
                if result.get("adminAccess"):
                    continue
                if "shareID" not in result:
                    dedicated.append(device)
                    continue
                shared.append({**device, "shareID": result["shareID"]})
                amounts = result.get("consumedCapacity") or {}
                consumed.append({**device, "consumedCapacity": amounts})
        return {
            "name": "random",
            "features": self.gates,
            "node": self.nodes[node],
            "classes": self.classes,
            "slices": [self._tainted(published) for published in self.slices.values()],
            "claims": claims,
            "allocatedDevices": dedicated,
            "allocatedSharedDevices": shared,
            "consumedCapacity": consumed,
        }

    def _tainted(self, published: Object) -> Object:
        """A slice with the taints of the rules."""
        published = deepcopy(published)
        spec = published["spec"]
        for device in spec.get("devices", ()):
            named = {
                "driver": spec["driver"],
                "pool": spec["pool"]["name"],
                "device": device["name"],
            }
            for _, rule in sorted(self.rules.items()):
                if rule["spec"]["deviceSelector"].items() <= named.items():
                    device["taints"] = [*device.get("taints", ()), rule["spec"]["taint"]]
        return published

    # Events.

    def _put_node(self, name: str) -> None:
        declared = ["DRAOptionalNodeOperations"] if self._dice.chance(0.5) else []
        self.nodes[name] = {
            "metadata": {"name": name, "labels": {"zone": self._dice.one_of(*ZONES)}},
            "status": {"declaredFeatures": declared},
        }

    def _change_node(self) -> None:
        name = self._dice.one_of(*_NODES)
        if name in self.nodes and self._dice.chance(0.4):
            del self.nodes[name]
        else:
            self._put_node(name)

    def _change_pool(self) -> None:
        """A driver publishes a pool, another version of one, or only a part of it."""
        nodes = self._dice.random.sample(_NODES, len(_NODES))
        pools = RandomPools(self._dice, self.gates, most=5, nodes=nodes)
        driver, name = self._dice.one_of(*DRIVERS), self._dice.one_of(*_POOLS)
        if self._dice.chance(0.8):
            self._remove_pool(driver, name)
        for published in pools.pool(driver, name):
            self.slices[published["metadata"]["name"]] = published

    def _copy_devices(self) -> None:
        """A node gets the devices that another has, in any order."""
        of_one_node = [
            published for published in self.slices.values() if "nodeName" in published["spec"]
        ]
        if not of_one_node:
            return
        spec = self._dice.one_of(*of_one_node)["spec"]
        driver, name, node = spec["driver"], spec["pool"]["name"], self._dice.one_of(*_NODES)
        copied = f"{name.partition('-on-')[0]}-on-{node}"
        whole = [each for each in of_one_node if _pool(each) == (driver, name)]
        self._remove_pool(driver, copied)
        for index, published in enumerate(whole):
            twin = deepcopy(published["spec"])
            twin["nodeName"] = node
            twin["pool"]["name"] = copied
            self._dice.random.shuffle(twin.get("devices", []))
            slice_name = f"{driver}-{copied}-{index}"
            self.slices[slice_name] = {"metadata": {"name": slice_name}, "spec": twin}

    def _remove_pool(self, driver: str, name: str) -> None:
        self.slices = {
            key: published
            for key, published in self.slices.items()
            if _pool(published) != (driver, name)
        }

    def _remove_slice(self) -> None:
        if self.slices:
            del self.slices[self._dice.one_of(*self.slices)]

    def _change_rule(self) -> None:
        name = self._dice.one_of("rule-0", "rule-1")
        if name in self.rules and self._dice.chance(0.6):
            del self.rules[name]
            return
        selector = {"driver": self._dice.one_of(*DRIVERS), "pool": self._dice.one_of(*_POOLS)}
        if self.slices and self._dice.chance(0.5):
            spec = self._dice.one_of(*self.slices.values())["spec"]
            selector = {"driver": spec["driver"], "pool": spec["pool"]["name"]}
            if spec.get("devices"):
                selector["device"] = self._dice.one_of(*spec["devices"])["name"]
        if self._dice.chance(0.3):
            selector.pop("pool")
        effect = self._dice.one_of("NoSchedule", "NoExecute", "None")
        taint = {"key": "k1", "value": self._dice.one_of("v1", "v2"), "effect": effect}
        self.rules[name] = {
            "metadata": {"name": name},
            "spec": {"deviceSelector": selector, "taint": taint},
        }

    def _release(self) -> None:
        if self.claims:
            del self.claims[self._dice.one_of(*self.claims)]

    def _take_devices(self) -> None:
        """Another allocator gives out devices, or a claim has some that are gone by now."""
        offered = [
            (published["spec"], device)
            for published in self.slices.values()
            for device in published["spec"].get("devices", ())
        ]
        if not offered:
            return
        results = []
        for spec, device in self._dice.random.sample(offered, min(len(offered), 2)):
            result: Object = {
                "request": "r",
                "driver": spec["driver"],
                "pool": spec["pool"]["name"],
                "device": device["name"],
            }
            if device.get("allowMultipleAllocations") and "DRAConsumableCapacity" in self.gates:
                result["shareID"] = "bbbbbbbb-bbbb-4bbb-8bbb-bbbbbbbbbbbb"
                result["consumedCapacity"] = {"memory": self._dice.one_of("1", "2")}
            results.append(result)
        name = f"foreign-{self._dice.between(0, 3)}"
        claim = {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"devices": {"requests": []}},
        }
        self.allocate(claim, {"devices": {"results": results}})


def _pool(published: Object) -> tuple[str, str]:
    spec = published["spec"]
    return spec["driver"], spec["pool"]["name"]
