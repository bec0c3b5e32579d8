"""What a selector tells about itself: what it requires, and what its evaluations cost."""

from contextlib import suppress
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carina_dra.cel import (
    CelDevice,
    CelError,
    CompileError,
    Meter,
    compile_attribute,
    compile_selector,
)
from carina_dra.quantity import Quantity
from carina_dra.resource import Device, StringAttribute, decode
from carina_dra.resource.attribute import lookup
from tests.samples.expressions import random_expression

_DRIVER = "gpu.example.com"
_A = f'device.attributes["{_DRIVER}"]'
_IS_FISH = f'{_A}.name == "fish"'
_FISH = (f"{_DRIVER}/name", "fish")


@pytest.mark.parametrize(
    ("expression", "required"),
    [
        (_IS_FISH, {_FISH}),
        (f'"fish" == {_A}.name', {_FISH}),
        (f'{_A}["name"] == "fish"', {_FISH}),
        (f'({_IS_FISH}) && {_A}.kind == "cod"', {_FISH, (f"{_DRIVER}/kind", "cod")}),
        (f"true && (1 == 1 && ({_IS_FISH}))", {_FISH}),
        (f'cel.bind(g, {_A}, g.name == "fish" && g.count > 1)', {_FISH}),
        (f'cel.bind(g, {_A}, cel.bind(h, g, h["name"] == "fish"))', {_FISH}),
        (f"cel.bind(x, 1, x == 1 && {_IS_FISH})", {_FISH}),
        (f'{_IS_FISH} && {_A}.name == "cod"', {_FISH, (f"{_DRIVER}/name", "cod")}),
        (f"{_IS_FISH} || true", set()),
        (f"!({_IS_FISH})", set()),
        (f"true ? {_IS_FISH} : true", set()),
        (f'{_A}.name != "fish"', set()),
        (f"({_IS_FISH}) == true", set()),
        (f"{_IS_FISH} == true", set()),
        (f'{_A}.?name.orValue("") == "fish"', set()),
        (f'dyn({_A}.?name) == "fish"', set()),
        (f'dyn({_A}[?"name"]) == "fish"', set()),
        (f"{_A}.name == 1", set()),
        (f"has({_A}.name) == true", set()),
        (f'dyn(has({_A}.name)) == "fish"', set()),
        (f'device.driver == "{_DRIVER}"', set()),
        (f'dyn(device.capacity["{_DRIVER}"].name) == "fish"', set()),
        (f"[1].all(x, {_IS_FISH})", set()),
        (f'cel.bind(g, {{"name": "fish"}}, g.name == "fish" && {_A}.count > 1)', set()),
        (f'cel.bind(g, {_A}, cel.bind(g, {{"name": "fish"}}, g.name == "fish"))', set()),
        (
            f'cel.bind(device, {{"attributes": {{"{_DRIVER}": {{"name": "fish"}}}}}}, {_IS_FISH})',
            set(),
        ),
        ("true", set()),
    ],
)
def test_equalities_are_those_of_the_top_conjunction(
    expression: str, required: set[tuple[str, str]]
) -> None:
    assert compile_selector(expression).equalities == required


_C = f'device.capacity["{_DRIVER}"]'
_LARGE = f'{_C}.memory.compareTo(quantity("2Ki")) >= 0'
_MEMORY = (f"{_DRIVER}/memory", 2048 * 10**9)
_COUNTED = " && [1].all(x, x == 1)"


@pytest.mark.parametrize(
    ("expression", "deciding"),
    [
        (_IS_FISH, (_FISH,)),
        (f'{_IS_FISH} && {_A}.kind == "cod"', ((f"{_DRIVER}/kind", "cod"), _FISH)),
        (f"{_IS_FISH} || true", ()),
        (_IS_FISH + _COUNTED, ()),
        ('device.attributes["a/b"].name == "fish"', ()),
        ('device.attributes["a"]["b/name"] == "fish"', ()),
    ],
)
def test_equalities_decide_if_the_cost_of_the_selector_is_not_counted(
    expression: str, deciding: tuple[tuple[str, str], ...]
) -> None:
    assert compile_selector(expression).deciding == deciding


@pytest.mark.parametrize(
    ("expression", "minimums"),
    [
        (_LARGE, (_MEMORY,)),
        (f'{_C}["memory"].compareTo(quantity("2Ki")) > 0', (_MEMORY,)),
        (f'{_C}.memory.isGreaterThan(quantity("2Ki"))', (_MEMORY,)),
        (f'cel.bind(c, {_C}, 1 == 1 && c.memory.compareTo(quantity("2Ki")) >= 0)', (_MEMORY,)),
        (
            f'{_LARGE} && {_C}.cores.isGreaterThan(quantity("1m"))',
            ((f"{_DRIVER}/cores", 10**6), _MEMORY),
        ),
        (_LARGE + _COUNTED, ()),
        (f"{_LARGE} || true", ()),
        (f"!({_LARGE})", ()),
        (f'{_C}.memory.compareTo(quantity("2Ki")) <= 0', ()),
        (f'{_C}.memory.compareTo(quantity("2Ki")) == 0', ()),
        (f'{_C}.memory.compareTo(quantity("2Ki")) >= -1', ()),
        (f'{_C}.memory.isLessThan(quantity("2Ki"))', ()),
        (f'quantity("2Ki").isGreaterThan({_C}.memory)', ()),
        (f"{_C}.memory.isGreaterThan({_C}.cores)", ()),
        (f'{_C}.memory.isGreaterThan(quantity("no quantity"))', ()),
        (f'{_A}.memory.isGreaterThan(quantity("2Ki"))', ()),
    ],
)
def test_minimums_are_those_of_the_top_conjunction(
    expression: str, minimums: tuple[tuple[str, int], ...]
) -> None:
    assert compile_selector(expression).minimums == minimums


_VALUES: list[dict[str, Any] | None] = [
    {"string": "fish"},
    {"string": "cod"},
    {"string": ""},
    {"strings": ["fish"]},
    {"version": "1.0.0"},
    {"int": 1},
    {"bool": True},
    None,
]
_NAMES = ["name", "kind", f"{_DRIVER}/name", "other.org/name"]


@st.composite
def _conditions(draw: st.DrawFn, depth: int = 4) -> str:
    """Conditions on the names, joined in many ways."""
    if depth == 0 or draw(st.booleans()):
        domain = draw(st.sampled_from([_A, 'device.attributes["other.org"]', "g"]))
        name = draw(st.sampled_from([".name", '["name"]', ".kind", ".?name.orValue('fish')"]))
        value = draw(st.sampled_from(['"fish"', '"cod"', '""', "1", "dyn(1)"]))
        sides = [f"{domain}{name}", value]
        if draw(st.booleans()):
            sides.reverse()
        return f"{sides[0]} {draw(st.sampled_from(['==', '==', '==', '!=']))} {sides[1]}"
    one, other = draw(_conditions(depth - 1)), draw(_conditions(depth - 1))
    if draw(st.booleans()):
        return f"({one} && {other})"
    form = draw(
        st.sampled_from(
            [
                "({0} || {1})",
                "!({0})",
                "(true ? {0} : {1})",
                "(({0}) == ({1}))",
                "cel.bind(g, device.attributes['other.org'], {0})",
                "cel.bind(g, {{'name': 'fish', 'kind': 'cod'}}, {0} && {1})",
                "(({0}) && 1 / 0 == 1)",
            ]
        )
    )
    return form.format(one, other)


@given(
    _conditions(),
    st.integers(0, 10**6),
    st.lists(st.sampled_from(_VALUES), min_size=len(_NAMES), max_size=len(_NAMES)),
)
def test_no_device_without_the_equalities_is_selected(
    condition: str, seed: int, values: list[dict[str, Any] | None]
) -> None:
    attributes = {name: value for name, value in zip(_NAMES, values, strict=True) if value}
    device = decode(Device, {"name": "d", "attributes": attributes})
    view = CelDevice.of(_DRIVER, device)
    bound = f"cel.bind(g, {_A}, {condition})"
    for expression in (bound, f"{bound} && {random_expression(Random(seed))}"):
        try:
            selector = compile_selector(expression)
        except CompileError:
            continue
        has_all = all(
            lookup(device.attributes, name, _DRIVER) == StringAttribute(value)
            for name, value in selector.equalities
        )
        with suppress(CelError):
            assert has_all or not selector.matches(view)


@given(
    _conditions(),
    st.lists(st.sampled_from(_VALUES), min_size=len(_NAMES), max_size=len(_NAMES)),
)
def test_selector_is_false_for_a_device_with_another_string(
    condition: str, values: list[dict[str, Any] | None]
) -> None:
    attributes = {name: value for name, value in zip(_NAMES, values, strict=True) if value}
    device = decode(Device, {"name": "d", "attributes": attributes})
    try:
        selector = compile_selector(f"cel.bind(g, {_A}, {condition})")
    except CompileError:
        return
    for name, value in selector.deciding:
        found = lookup(device.attributes, name, _DRIVER)
        if isinstance(found, StringAttribute) and found.value != value:
            assert selector.matches(CelDevice.of(_DRIVER, device)) is False


_AMOUNTS = st.sampled_from(["0", "1", "2047", "2Ki", "2048.0000000001", "4Ki", "-1"])


@given(
    _AMOUNTS,
    st.lists(_AMOUNTS, min_size=1, max_size=3),
    st.sampled_from(["{}.compareTo({}) >= 0", "{}.compareTo({}) > 0", "{}.isGreaterThan({})"]),
    st.sampled_from(["", ' && device.attributes["other.org"].absent == 1']),
)
def test_selector_is_false_for_a_device_with_less(
    amount: str, required: list[str], form: str, more: str
) -> None:
    device = {"name": "d", "capacity": {"memory": {"value": amount}}}
    view = CelDevice.of(_DRIVER, decode(Device, device))
    terms = [form.format(f"{_C}.memory", f'quantity("{least}")') for least in required]
    selector = compile_selector(" && ".join(terms) + more)
    assert selector.minimums
    if any(Quantity.parse(amount).nanos < least for _, least in selector.minimums):
        assert selector.matches(view) is False
    elif not more and "compareTo" in form and ">=" in form:
        assert selector.matches(view) is True


def test_equal_texts_are_the_same_selector() -> None:
    text = f"{_IS_FISH} && 1 == 1"
    assert compile_selector(text) is compile_selector("".join(text))
    assert compile_attribute("1 + 1") is compile_attribute("1 + " + "1")


def test_error_of_a_text_is_the_same_each_time() -> None:
    problems = []
    for _ in range(2):
        with pytest.raises(CompileError) as refusal:
            compile_selector("1 +")
        problems.append(str(refusal.value))
    assert problems[0] == problems[1]


def test_meter_sums_the_cost_of_evaluations() -> None:
    view = CelDevice.of(_DRIVER, decode(Device, {"name": "d"}))
    meter = Meter()
    selector = compile_selector("lists.range(100).all(x, x < 100)")
    selector.matches(view, meter)
    once = meter.spent
    selector.matches(view, meter)
    assert meter.spent == 2 * once > 1000


def test_meter_counts_expressions_that_are_too_short_to_be_limited() -> None:
    view = CelDevice.of(_DRIVER, decode(Device, {"name": "d"}))
    meter = Meter()
    compile_selector("1 == 1 && 2 == 2").matches(view, meter)
    assert 0 < meter.spent < 20
