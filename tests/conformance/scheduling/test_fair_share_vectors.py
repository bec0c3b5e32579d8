"""Queues get the fair shares that the KAI Scheduler's tests expect, in every case."""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final

from controller.engine.decide.queues.fair_share import Claimant, divide_tree

_UNITS: Final[Mapping[str, int]] = {"gpu": 10**9, "cpuMilli": 1, "memoryBytes": 1}
"""How many a unit is. Amounts of GPUs are fractions, exact to 1e-9: they are counted in those."""


def test_vector(fair_share_vector: dict[str, Any]) -> None:
    expected = fair_share_vector["expect"]
    for resource, total in fair_share_vector["total"].items():
        unit = _UNITS[resource]
        shares = _shares(fair_share_vector, resource, unit)
        for name, amounts in expected["fairShare"].items():
            if resource in amounts:
                assert shares[name] == _integer(amounts[resource], unit), (name, resource)
        if resource in expected["remaining"]:
            kept = sum(
                _integer(queue[resource]["initialShare"], unit)
                for queue in fair_share_vector["queues"]
            )
            remaining = max(0, _integer(total, unit) + kept - sum(shares.values()))
            assert remaining == _integer(expected["remaining"][resource], unit), resource


def _shares(vector: dict[str, Any], resource: str, unit: int) -> Mapping[str, int]:
    """The shares of all queues; what they have of an earlier step counts as their quota."""
    total = _integer(vector["total"][resource], unit)
    only_by_weight = vector["stage"] == "over-quota-only"
    children: dict[str | None, list[Claimant]] = {}
    for queue in vector["queues"]:
        amounts = queue[resource]
        quota, limit, request = (
            None if amounts[key] == -1 else _integer(amounts[key], unit)
            for key in ("deserved", "limit", "request")
        )
        assert request is not None
        if only_by_weight:
            quota = _integer(amounts["initialShare"], unit)
            total += quota
        claimant = Claimant(
            queue["name"],
            queue["priority"],
            queue["ageRank"],
            quota,
            limit,
            _fraction(amounts["weight"]),
            request,
            _fraction(amounts["usage"]),
        )
        children.setdefault(queue["parent"], []).append(claimant)
    return divide_tree(total, children, unit=unit, k=_fraction(vector["kValue"]))


def _integer(amount: float, unit: int) -> int:
    return round(_fraction(amount) * unit)


def _fraction(number: float) -> Fraction:
    return Fraction(str(number))
