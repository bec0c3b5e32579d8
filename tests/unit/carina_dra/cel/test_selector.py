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
