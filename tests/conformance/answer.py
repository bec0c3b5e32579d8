"""What Carina's allocator answers to a case of the conformance vectors.

As a program it reads cases as JSON lines and writes an answer a line, so that any other
implementation can be compared: `python -m tests.conformance.answer < cases`.
"""

import argparse
import itertools
import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

from carina_dra.allocator.allocate import Allocated, Answer, allocate
from carina_dra.allocator.errors import AllocationError, NodeAllocationError
from carina_dra.allocator.node import Node
from carina_dra.allocator.node_state import NodeState
from carina_dra.allocator.pool import PoolSlice, gather
from carina_dra.allocator.preference import UPSTREAM, Policy
from carina_dra.allocator.request import Claim, check
from carina_dra.allocator.search import Impossible
from carina_dra.allocator.usage import DeviceId, SharedUse, Usage
from carina_dra.quantity import Quantity, QuantityError
from carina_dra.resource import (
    DecodeError,
    DeviceClass,
    ResourceClaim,
    ResourceSlice,
    decode,
    encode,
)
from tests.samples.feature_gates import FIELD_OF_GATE, features_of


def share_ids() -> Callable[[], str]:
    """UIDs of shares, each another; equal from run to run."""
    numbers = itertools.count()
    return lambda: f"{next(numbers):08x}-aaaa-4aaa-8aaa-aaaaaaaaaaaa"


def answer(case: Mapping[str, Any], policy: Policy = UPSTREAM) -> dict[str, Any]:
    """The answer to a case, as JSON."""
    try:
        return written(attempt(case, policy))
    except (AllocationError, DecodeError, QuantityError) as error:
        return written(error)


def written(found: Answer | Exception) -> dict[str, Any]:
    """An answer of the allocator, or its error, as JSON."""
    match found:
        case Exception():
            return {"error": str(found), "nodeLocal": isinstance(found, NodeAllocationError)}
        case Allocated(allocations=()):  # of no claims: the vectors write that like a no
            return {"unsatisfiable": True}
        case Allocated(allocations=allocations):
            return {"allocations": [encode(each) for each in allocations]}
        case Impossible():
            return {"unsatisfiable": True}
        case _:
            raise AssertionError(f"{found} of a search without a limit")


def attempt(case: Mapping[str, Any], policy: Policy = UPSTREAM) -> Answer:
    """The allocator's answer.

    Raises:
        AllocationError: the attempt fails.
    """
    claims, state = read(case)
    return allocate(claims, state, new_share_id=share_ids(), policy=policy)


def read(case: Mapping[str, Any]) -> tuple[list[Claim], NodeState]:
    """The claims of a case, checked, and the state of its node.

    Raises:
        AllocationError: a claim or slice is not valid.
    """
    features = features_of(gate for each in case["features"] for gate in _gates(each))
    node = Node.of(case["node"])
    classes = [decode(DeviceClass, each) for each in case.get("classes") or ()]
    by_name = {each.metadata.name: each for each in classes}
    claims = [decode(ResourceClaim, each) for each in case.get("claims") or ()]
    slices = [PoolSlice.of(decode(ResourceSlice, each)) for each in case.get("slices") or ()]
    checked = [check(claim, by_name, features) for claim in claims]
    return checked, NodeState(node, gather(slices, node, features), _usage(case), features)


def _gates(written: str) -> list[str]:
    """A feature of the vectors may be several gates, of which some say nothing about allocation."""
    return [gate for gate in written.split("+") if gate in FIELD_OF_GATE]


def _usage(case: Mapping[str, Any]) -> Usage:
    amounts: dict[DeviceId, dict[str, int]] = {
        _device(each): {} for each in case.get("allocatedSharedDevices") or ()
    }
    for each in case.get("consumedCapacity") or ():
        consumed = amounts.setdefault(_device(each), {})
        for name, text in each["consumedCapacity"].items():
            consumed[name] = consumed.get(name, 0) + Quantity.parse(text).nanos
    return Usage(
        dedicated={_device(each): 1 for each in case.get("allocatedDevices") or ()},
        shared={device: SharedUse(1, consumed) for device, consumed in amounts.items()},
    )


def _device(written: Mapping[str, str]) -> DeviceId:
    return DeviceId(written["driver"], written["pool"], written["device"])


def main() -> None:
    """Answers the cases on standard input, one line each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--policy", type=Policy.parse, default=UPSTREAM, help="as of `carina allocate` [upstream]"
    )
    policy = parser.parse_args().policy
    for line in sys.stdin:
        if line.strip():
            print(json.dumps(answer(json.loads(line), policy)), flush=True)


if __name__ == "__main__":
    main()
