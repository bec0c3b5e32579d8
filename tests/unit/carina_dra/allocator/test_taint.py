"""Which taints keep claims away, and which devices a DeviceTaintRule taints (KEP-5055)."""

from typing import Any

import pytest

from carina_dra.allocator.taint import added_by_rules, may_apply, untolerated
from carina_dra.resource import Device, DeviceTaintRule, DeviceToleration, decode

_TAINT = {"key": "lost", "value": "xid79", "effect": "NoExecute"}


def _rule(name: str = "rule", **selector: str) -> DeviceTaintRule:
    spec = {"deviceSelector": selector, "taint": {**_TAINT, "key": name}}
    return decode(DeviceTaintRule, {"metadata": {"name": name}, "spec": spec})


def _is_kept_away(effect: str, *tolerations: dict[str, Any]) -> bool:
    device = decode(Device, {"name": "d", "taints": [{**_TAINT, "effect": effect}]})
    read = [decode(DeviceToleration, toleration) for toleration in tolerations]
    return untolerated(device, read) is not None


@pytest.mark.parametrize(
    ("effect", "is_kept_away"), [("NoSchedule", True), ("NoExecute", True), ("None", False)]
)
def test_taint_keeps_claims_away_by_its_effect(effect: str, *, is_kept_away: bool) -> None:
    assert _is_kept_away(effect) == is_kept_away


@pytest.mark.parametrize(
    ("toleration", "covers"),
    [
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "key": "lost"}, True),
        ({"operator": "Exists", "key": "found"}, False),
        ({"operator": "Exists", "effect": "NoExecute"}, True),
        ({"operator": "Exists", "effect": "NoSchedule"}, False),
        ({"operator": "Equal", "key": "lost", "value": "xid79"}, True),
        ({"operator": "Equal", "key": "lost", "value": "xid48"}, False),
    ],
    ids=str,
)
def test_toleration_covers_a_taint_by_key_value_and_effect(
    toleration: dict[str, Any], *, covers: bool
) -> None:
    assert _is_kept_away("NoExecute", toleration) != covers


@pytest.mark.parametrize(
    ("selector", "applies"),
    [
        ({}, True),
        ({"driver": "d", "pool": "p", "device": "x"}, True),
        ({"device": "y"}, False),
        ({"pool": "q"}, False),
        ({"driver": "e"}, False),
    ],
    ids=str,
)
def test_rule_taints_the_devices_that_it_selects(
    selector: dict[str, str], *, applies: bool
) -> None:
    assert bool(added_by_rules([_rule(**selector)], "d", "p", "x")) == applies


@pytest.mark.parametrize(
    ("selector", "applies"),
    [({"device": "y"}, True), ({"pool": "q"}, False), ({"driver": "e"}, False)],
    ids=str,
)
def test_rule_may_apply_to_a_pool_whatever_its_devices(
    selector: dict[str, str], *, applies: bool
) -> None:
    assert may_apply(_rule(**selector), "d", "p") == applies


def test_rule_without_a_selector_taints_nothing() -> None:
    body = {"metadata": {"name": "rule"}, "spec": {"taint": _TAINT}}
    rule = decode(DeviceTaintRule, body)
    assert added_by_rules([rule], "d", "p", "x") == ()
    assert not may_apply(rule, "d", "p")


def test_taints_are_added_in_the_order_of_the_rules() -> None:
    rules = [_rule("b"), _rule("a"), _rule("other", device="y")]
    assert [taint.key for taint in added_by_rules(rules, "d", "p", "x")] == ["b", "a"]
