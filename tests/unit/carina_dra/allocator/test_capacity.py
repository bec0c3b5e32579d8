"""How much of a capacity a request takes (KEP-5075)."""

from typing import Any

import pytest

from carina_dra.allocator.capacity import CapacityError, consumed_capacity, fits
from carina_dra.quantity import Quantity
from carina_dra.resource import CapacityRequirements, DeviceCapacity, decode


def _capacity(value: str = "10", **policy: Any) -> dict[str, DeviceCapacity]:
    written: dict[str, Any] = {"value": value}
    if policy:
        written["requestPolicy"] = policy
    return {"memory": decode(DeviceCapacity, written)}


def _taken(
    capacity: dict[str, DeviceCapacity], wanted: str | None, *, fractional: bool = False
) -> str | None:
    requests = {} if wanted is None else {"memory": Quantity.parse(wanted)}
    amounts = consumed_capacity(capacity, CapacityRequirements(requests), fractional=fractional)
    return None if amounts is None else str(amounts["memory"])


@pytest.mark.parametrize(
    ("valid", "wanted", "amount"),
    [
        ({"min": "2", "step": "2"}, "3", "4"),
        ({"min": "2"}, "100m", "2"),
        ({"min": "2", "step": "2"}, "2500m", "4"),
        ({"min": "2"}, "2500m", "2500m"),
        ({"min": "2", "step": "4", "max": "8"}, "7", None),
        ({"min": "2", "max": "8"}, "9", None),
        ({"min": "2", "step": "500m"}, "2500m", "3"),
    ],
)
def test_range_rounds_up_and_may_forbid(
    valid: dict[str, str], wanted: str, amount: str | None
) -> None:
    assert _taken(_capacity(default="2", validRange=valid), wanted) == amount


@pytest.mark.parametrize(("wanted", "amount"), [("1", "1"), ("3", "5"), ("6", None)])
def test_amount_rounds_up_to_the_next_valid_value(wanted: str, amount: str | None) -> None:
    assert _taken(_capacity(default="1", validValues=["1", "2", "5"]), wanted) == amount


def test_thousandths_count_with_the_feature_enabled() -> None:
    capacity = _capacity(default="500m", validRange={"min": "500m", "step": "500m"})
    assert _taken(capacity, "1200m", fractional=True) == "1500m"


def test_without_a_request_the_default_or_everything_is_consumed() -> None:
    assert _taken(_capacity(default="3", validRange={"min": "1"}), None) == "3"
    assert _taken(_capacity("10"), None) == "10"


@pytest.mark.parametrize(
    "valid",
    [{"validRange": {"min": "2", "max": "8"}}, {"validValues": ["1", "2"]}],
    ids=["range", "values"],
)
def test_default_is_consumed_though_no_request_may_ask_for_it(valid: dict[str, Any]) -> None:
    assert _taken(_capacity(default="9", **valid), None) == "9"
    assert _taken(_capacity(default="2", **valid), "9") is None


def test_smallest_step_that_counts_is_a_thousandth() -> None:
    capacity = _capacity(default="1m", validRange={"min": "1m", "step": "1m"})
    assert _taken(capacity, "2m", fractional=True) == "2m"
    assert _taken(capacity, "2m") == "1"


def test_amount_between_thousandths_is_an_error_of_a_range_that_counts_in_them() -> None:
    capacity = _capacity(default="1m", validRange={"min": "1m", "step": "1m"})
    with pytest.raises(CapacityError, match="not a representable milli value"):
        _taken(capacity, "1500u", fractional=True)


def test_device_that_lacks_a_requested_capacity_cannot_serve() -> None:
    wanted = CapacityRequirements({"cores": Quantity.parse("1")})
    assert consumed_capacity(_capacity(), wanted, fractional=False) is None


@pytest.mark.parametrize("wanted", ["9223372036854775808", "9223372036854775807"])
def test_amount_beyond_64_bits_is_an_error(wanted: str) -> None:
    capacity = _capacity("1", default="2", validRange={"min": "2", "step": "4"})
    with pytest.raises(CapacityError, match=r'capacity "memory": .* cannot be represented'):
        _taken(capacity, wanted)


def test_negative_amount_is_an_error() -> None:
    with pytest.raises(CapacityError, match="negative"):
        _taken(_capacity(), "-1")


def test_fits_beside_what_is_in_use() -> None:
    amounts = {"memory": Quantity.parse("4")}
    six, seven = ({"memory": Quantity.parse(text).nanos} for text in ("6", "7"))
    assert fits(amounts, _capacity("10"), six)
    assert not fits(amounts, _capacity("10"), seven)
    assert not fits(amounts, _capacity("10"), six, {"memory": 1})
