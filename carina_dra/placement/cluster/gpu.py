"""How much of a physical GPU a device is, so that whole GPUs, partitions and shares can be added.

A whole GPU is 1, however it is used: by containers, or passed through to a virtual machine. A
partition or a share is the largest of its parts of the GPU's memory and compute (cores), but at
least the least share, which its node publishes. Amounts are integers, of which a whole GPU has
`GPU`: usual parts are exact, others are rounded up.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Final, NamedTuple

from carina_dra.least_share import DEFAULT_LEAST_SHARE, LEAST_SHARE, parse_least_share
from carina_dra.quantity import Quantity
from carina_dra.resource import Device, DeviceAttribute, StringAttribute, lookup

GPU: Final = 2**20 * 3**3 * 5**3 * 7 * 11 * 13 * 19 * 37
"""A whole GPU: tenths, sevenths, percents and MiB of GiB are whole numbers."""
DRIVERS: Final = frozenset({"gpu.carina.dev", "gpu.nvidia.com"})
"""The drivers whose devices are GPUs, beside the one that the plugin is configured to be."""

_LEAST: Final = int(GPU * DEFAULT_LEAST_SHARE)
_MIG: Final = "mig"
_TYPES: Final = frozenset({"gpu", _MIG, "share", "vfio"})
_BUS: Final = "resource.kubernetes.io/pciBusID"
_COMPUTE: Final = ("multiprocessors", "compute-slices")
"""The counters of compute: the plugin's, and the simulation's."""
_SLICE: Final = "memory-slice-"
_COMPUTE_SLICES: Final = 7
"""Of a GPU, as in the profile `1g.10gb`, where no counter says it."""


class GpuId(NamedTuple):
    """A physical GPU."""

    driver: str
    pool: str
    name: str


def is_gpu(device: Device, driver: str, drivers: Collection[str]) -> bool:
    """Whether a device is a GPU or a part of one, and not only sight of one."""
    return driver in drivers and _text(device, f"{driver}/type", driver) in _TYPES


def is_partition(device: Device, driver: str) -> bool:
    """Whether a device is a fixed part of a GPU."""
    return _text(device, f"{driver}/type", driver) == _MIG


def model_of(device: Device, driver: str) -> str:
    """The product name of a device's GPU."""
    return _text(device, f"{driver}/productName", driver)


def attributes_read(drivers: Iterable[str]) -> tuple[str, ...]:
    """The attributes on which parts and models depend, by qualified names."""
    names = ("type", "productName", "profile", LEAST_SHARE)
    return (_BUS, *(f"{driver}/{name}" for driver in sorted(drivers) for name in names))


def invalid_least_share(device: Device, driver: str) -> DeviceAttribute | None:
    """What a device says for its least share and is none, so that the default holds."""
    found = lookup(device.attributes, f"{driver}/{LEAST_SHARE}", driver)
    if isinstance(found, StringAttribute) and _least_of(found.value) is not None:
        return None
    return found


def gpu_name(device: Device, driver: str) -> str:
    """What the devices of one GPU have in common, and those of another GPU of the pool have not."""
    bus = _text(device, _BUS, driver)
    if bus:
        return bus
    if device.consumes_counters:
        return device.consumes_counters[0].counter_set
    return (
        _text(device, f"{driver}/parentUUID", driver)
        or _text(device, f"{driver}/uuid", driver)
        or device.name
    )


class PoolGpus:
    """The GPUs of a pool, of whose devices the parts are asked for."""

    def __init__(
        self, driver: str, devices: Sequence[Device], counters: Mapping[str, Mapping[str, int]]
    ) -> None:
        """`counters` are the totals of each counter set in billionths."""
        self._driver = driver
        self._devices = devices
        self._counters = counters

    @cached_property
    def _memory(self) -> Mapping[str, int]:
        """That of whole GPUs, in billionths."""
        found: dict[str, int] = {}
        for device in self._devices:
            if not is_partition(device, self._driver):
                name = gpu_name(device, self._driver)
                memory = _capacity(device, "memory", self._driver)
                found[name] = max(memory, found.get(name, 0))
        return found

    def part(self, device: Device, consumed: Mapping[str, Quantity] | None = None) -> int:
        """The part of its GPU that a device is, or a share of it with this consumption."""
        driver = self._driver
        if consumed is not None:
            parts = [
                _rounded_up(amount.nanos, whole)
                for name, amount in consumed.items()
                if (whole := _capacity(device, name.rpartition("/")[2], driver)) > 0
            ]
            return min(GPU, max(_least(device, driver), max(parts, default=GPU)))
        if not is_partition(device, driver):
            return GPU
        parts = [self._of_counters(device), _of_profile(_text(device, f"{driver}/profile", driver))]
        whole = self._memory.get(gpu_name(device, driver), 0)
        if whole:
            parts.append(_rounded_up(_capacity(device, "memory", driver), whole))
        return min(GPU, max(_least(device, driver), max(parts) or GPU))

    def _of_counters(self, device: Device) -> int:
        largest = 0
        for consumption in device.consumes_counters:
            totals = self._counters.get(consumption.counter_set, {})
            for name in _COMPUTE:
                consumed = consumption.counters.get(name)
                if consumed is not None and totals.get(name, 0) > 0:
                    largest = max(largest, _rounded_up(consumed.value.nanos, totals[name]))
            slices = sum(name.startswith(_SLICE) for name in totals)
            if slices:
                own = sum(name.startswith(_SLICE) for name in consumption.counters)
                largest = max(largest, _rounded_up(own, slices))
        return largest


def _of_profile(profile: str) -> int:
    """The part of the compute slices that a partition such as 3g.40gb has."""
    slices, is_profile, _ = profile.partition("g.")
    if not is_profile or not slices.isdecimal() or len(slices) > 1:
        return 0
    return min(GPU, _rounded_up(int(slices), _COMPUTE_SLICES))


def _least(device: Device, driver: str) -> int:
    """What a device counts at least, if it is a partition or a share."""
    found = _least_of(_text(device, f"{driver}/{LEAST_SHARE}", driver))
    return _LEAST if found is None else found


@lru_cache(maxsize=64)
def _least_of(text: str) -> int | None:
    try:
        return _rounded_up(*parse_least_share(text).as_integer_ratio())
    except ValueError:
        return None


def _capacity(device: Device, name: str, driver: str) -> int:
    found = lookup(device.capacity, f"{driver}/{name}", driver)
    return 0 if found is None else max(0, found.value.nanos)


def _text(device: Device, name: str, driver: str) -> str:
    found = lookup(device.attributes, name, driver)
    return found.value if isinstance(found, StringAttribute) else ""


def _rounded_up(amount: int, whole: int) -> int:
    return -(-amount * GPU // whole)
