"""Random cases for the allocator, in the format of the conformance vectors.

Small clusters with everything that allocation knows, about half of them with devices for their
claims. Where upstream 1.37.0 is known to be wrong, no case of `random_case` goes: no request with
admin access comes with counters, shared devices, or another request in the case. `small_case` is
small enough to try every allocation, and goes there too.
"""

from random import Random

from tests.samples.dice import Dice
from tests.samples.random_claims import CLASSES, RandomClaims, device_class
from tests.samples.random_pools import DRIVERS, ZONES, Object, RandomPools

DEFAULT_GATES = (
    "DRAAdminAccess",
    "DRAPrioritizedList",
    "DRAPartitionableDevices",
    "DRADeviceTaints",
    "DRADeviceBindingConditions+DRAResourceClaimDeviceStatus",
    "DRAConsumableCapacity",
)
ALPHA_GATES = (
    "DRAListTypeAttributes",
    "DRAOptionalNodeOperations",
    "DRADerivedAttributes",
    "DRADeviceCompatibilityGroups",
    "DRAFractionalCapacityRange",
)
_SHARE_ID = "aaaaaaaa-aaaa-4aaa-8aaa-aaaaaaaaaaaa"


def random_case(random: Random) -> Object:
    """A case that upstream answers as it should."""
    dice = Dice(random)
    gates = random_gates(dice)
    if dice.chance(0.08):
        pools = RandomPools(dice, gates, most=12, kinds=("plain", "plain", "network"))
        claims = RandomClaims(dice, gates, most=1, admin=1, failing=0.15)
        return _case(dice, gates, pools, claims, claim_count=1)
    pools = RandomPools(dice, gates, most=12)
    claims = RandomClaims(dice, gates, most=4, admin=0, failing=0.15)
    return _case(dice, gates, pools, claims, claim_count=dice.one_of(1, 1, 1, 1, 2, 3))


def small_case(random: Random) -> Object:
    """A case of at most 7 devices and 3 requests, whose selectors fail on no device."""
    dice = Dice(random)
    gates = random_gates(dice)
    pools = RandomPools(dice, gates, most=7)
    claims = RandomClaims(dice, gates, most=3, admin=0.1, failing=0)
    return _case(dice, gates, pools, claims, claim_count=dice.one_of(1, 1, 2))


def random_gates(dice: Dice) -> list[str]:
    """Feature gates: mostly the defaults, with or without some alpha features."""
    alphas = [gate for gate in ALPHA_GATES if dice.chance(0.35)] if dice.chance(0.6) else []
    return [*(gate for gate in DEFAULT_GATES if not dice.chance(0.02)), *alphas]


def _case(
    dice: Dice, gates: list[str], pools: RandomPools, claims: RandomClaims, *, claim_count: int
) -> Object:
    slices = [
        published
        for index in range(dice.between(2, 5))
        for published in pools.pool(dice.one_of(*DRIVERS), f"pool-{index}")
    ]
    dice.random.shuffle(slices)
    dedicated, shared, consumed = _in_use(dice, gates, slices)
    declared = ["DRAOptionalNodeOperations"] if dice.chance(0.5) else []
    return {
        "name": "random",
        "features": gates,
        "node": {
            "metadata": {"name": "node-1", "labels": {"zone": dice.one_of(*ZONES)}},
            "status": {"declaredFeatures": declared},
        },
        "classes": [device_class(name) for name in CLASSES],
        "slices": slices,
        "claims": [claims.claim(f"claim-{index}") for index in range(claim_count)],
        "allocatedDevices": dedicated,
        "allocatedSharedDevices": shared,
        "consumedCapacity": consumed,
    }


def _in_use(
    dice: Dice, gates: list[str], slices: list[Object]
) -> tuple[list[Object], list[Object], list[Object]]:
    dedicated: list[Object] = []
    shared: list[Object] = []
    consumed: list[Object] = []
    seen: list[Object] = []
    for published in slices:
        spec = published["spec"]
        for device in spec.get("devices", ()):
            named = {
                "driver": spec["driver"],
                "pool": spec["pool"]["name"],
                "device": device["name"],
            }
            if named in seen or not dice.chance(0.12):
                continue
            seen.append(named)
            if device.get("allowMultipleAllocations") and "DRAConsumableCapacity" in gates:
                shared.append({**named, "shareID": _SHARE_ID})
                if "memory" in device.get("capacity", {}):
                    consumed.append({**named, "consumedCapacity": {"memory": "2"}})
            else:
                dedicated.append(named)
    return dedicated, shared, consumed
