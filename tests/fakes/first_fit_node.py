"""A node whose devices are ordered again after each claim, beside a scheduler that takes first fit.

The scheduler is whatever answers the cases of the conformance vectors: upstream's own code, or the
product's allocator with upstream's policy.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeAlias

from carina_dra.quantity import Quantity
from carina_dra.resource import ResourceSlice, encode
from kubelet_plugin.devices.device import GpuDevice, devices
from kubelet_plugin.devices.name import gpu_name, parse_name
from kubelet_plugin.devices.order import DeviceOrder, free_in_order
from kubelet_plugin.devices.publish_settings import PublishSettings
from kubelet_plugin.devices.room import DeviceUse
from kubelet_plugin.inventory.inventory import DriverReady
from kubelet_plugin.publish.arrangement import arranged
from kubelet_plugin.publish.pool import pool
from kubelet_plugin.publish.sync import resource_slices
from tests.samples.mig_models import MODELS, observed_with

DRIVER, NODE = "gpu.carina.dev", "node-1"
MODEL = MODELS["h100-sxm5-80gb"]
PROFILES = tuple(profile.name for profile in MODEL.mig_profiles)
Scheduler: TypeAlias = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Answers a case of the conformance vectors."""

_FEATURES = [
    "DRAAdminAccess",
    "DRAConsumableCapacity",
    "DRADeviceTaints",
    "DRAPartitionableDevices",
]


@dataclass(frozen=True)
class Ask:
    """What a claim asks for: one device of a type."""

    type: str
    attributes: tuple[tuple[str, str], ...] = ()
    capacity: tuple[tuple[str, str], ...] = ()

    def requests(self) -> list[dict[str, Any]]:
        """The requests of a claim."""
        conditions = [f"device.attributes['{DRIVER}'].type == '{self.type}'"]
        conditions += [
            f"device.attributes['{DRIVER}'].{key} == '{is_}'" for key, is_ in self.attributes
        ]
        exactly = {
            "deviceClassName": "any",
            "allocationMode": "ExactCount",
            "count": 1,
            "selectors": [{"cel": {"expression": " && ".join(conditions)}}],
            **({"capacity": {"requests": dict(self.capacity)}} if self.capacity else {}),
        }
        return [{"name": "gpu", "exactly": exactly}]


WHOLE = Ask("gpu")


def partition(profile: str) -> Ask:
    """A partition of a profile."""
    return Ask("mig", attributes=(("profile", profile),))


def share(percent: int) -> Ask:
    """A share of the memory and cores of a GPU."""
    return Ask("share", capacity=(("memory", f"{percent * 440}Mi"), ("cores", str(percent))))


@dataclass
class FirstFitNode:
    """A node with H100s."""

    order: DeviceOrder
    scheduler: Scheduler
    gpus: int = 2
    reorders: bool = True
    """Whether the slices follow the claims; if not, they keep their first order."""
    held: dict[str, DeviceUse] = field(default_factory=dict)
    """What claims hold, by the name of the claim."""
    slices: tuple[ResourceSlice, ...] = ()
    devices: tuple[GpuDevice, ...] = ()
    _numbers: Iterator[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        observed = (observed_with(MODEL, (), minor) for minor in range(self.gpus))
        self.devices = devices(DriverReady(tuple(observed)))
        self._publish()

    def ask(self, ask: Ask) -> str | None:
        """Allocates a claim; returns its device, or None if no device fits."""
        answer = self.scheduler(self._case(ask))
        if answer.get("unsatisfiable"):
            return None
        (allocation,) = answer["allocations"]
        (result,) = allocation["devices"]["results"]
        consumed = result.get("consumedCapacity") or {}
        self.held[f"claim-{next(self._numbers)}"] = DeviceUse(
            result["device"], {name: Quantity.parse(text) for name, text in consumed.items()}
        )
        if self.reorders:
            self._publish()
        return str(result["device"])

    def fill(self, ask: Ask) -> int:
        """Allocates claims until no device fits; returns their number."""
        number = 0
        while self.ask(ask) is not None:
            number += 1
        return number

    def release(self, claim: str) -> None:
        """Ends a claim."""
        del self.held[claim]
        if self.reorders:
            self._publish()

    def used(self) -> list[int]:
        """The GPUs of the devices in use, by minor number, in the order of the claims."""
        return [int(gpu_name(parse_name(use.device))[4:]) for use in self.held.values()]

    def _publish(self) -> None:
        of_node = pool(self.devices, PublishSettings(DRIVER), node=NODE, order=self.order)
        first = free_in_order(self.devices, self.held.values(), self.order)
        self.slices = resource_slices(arranged(of_node, first, self.slices, keep=False), 1)

    def _case(self, ask: Ask) -> dict[str, Any]:
        dedicated, shared, consumed = [], [], []
        for number, use in enumerate(self.held.values()):
            device = {"driver": DRIVER, "pool": NODE, "device": use.device}
            if use.consumed:
                shared.append({**device, "shareID": f"{number:08x}-aaaa-4aaa-8aaa-aaaaaaaaaaaa"})
                amounts = {name: str(quantity) for name, quantity in use.consumed.items()}
                consumed.append({**device, "consumedCapacity": amounts})
            else:
                dedicated.append(device)
        return {
            "features": _FEATURES,
            "node": {"metadata": {"name": NODE}},
            "classes": [{"metadata": {"name": "any"}, "spec": {}}],
            "slices": [
                {**encode(one), "metadata": {"name": one.metadata.generate_name}}
                for one in self.slices
            ],
            "claims": [
                {"metadata": {"name": "claim"}, "spec": {"devices": {"requests": ask.requests()}}}
            ],
            "allocatedDevices": dedicated,
            "allocatedSharedDevices": shared,
            "consumedCapacity": consumed,
        }
