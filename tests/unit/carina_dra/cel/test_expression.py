"""Whatever is written as an expression, nothing but CelError comes of it, and soon."""

import sys
import threading
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carina_dra.cel import (
    BudgetExceededError,
    CelDevice,
    CelError,
    CompileError,
    EvaluationError,
    compile_attribute,
    compile_selector,
)
from carina_dra.resource import (
    BoolAttribute,
    Device,
    DeviceAttribute,
    IntAttribute,
    IntsAttribute,
    StringAttribute,
    StringsAttribute,
    UnknownAttribute,
    VersionAttribute,
    VersionsAttribute,
    decode,
)
from tests.samples.expressions import device, random_expression

_DRIVER = "gpu.example.com"


def _seen() -> CelDevice:
    content = {name: value for name, value in device().items() if name != "driver"}
    return CelDevice.of(_DRIVER, decode(Device, {"name": "d", **content}))


def _outcome(expression: str) -> bool | CelError:
    try:
        return compile_selector(expression).matches(_seen())
    except CelError as error:
        return error


@given(st.text(max_size=60))
def test_any_text_is_an_expression_or_an_error(text: str) -> None:
    _outcome(text)


_WORDS = [
    "device",
    ".",
    "attributes",
    "[",
    "]",
    "(",
    ")",
    "{",
    "}",
    "?",
    ":",
    ",",
    "1",
    "1u",
    "1.5",
    '"x"',
    "b'y'",
    "&&",
    "||",
    "!",
    "-",
    "+",
    "*",
    "/",
    "%",
    "<",
    "==",
    "in",
    "all",
    "map",
    "x",
    "has",
    "cel.bind",
    "size",
    "int",
    "null",
    "true",
    "optional.none()",
    "sets.contains",
    "matches",
]


@given(st.lists(st.sampled_from(_WORDS), max_size=25))
def test_any_words_are_an_expression_or_an_error(words: list[str]) -> None:
    _outcome(" ".join(words))


@given(st.integers(0, 10**9))
def test_any_tree_is_answered(seed: int) -> None:
    _outcome(random_expression(Random(seed)))


@pytest.mark.parametrize(
    "expression",
    [
        "(" * 300 + "true" + ")" * 300,
        "!" * 5000 + "true",
        "[" * 400 + "]" * 400 + " == []",
        " && ".join(["true"] * 3000),
        " + ".join(["1"] * 3000) + " == 3000",
        "device" + ".x" * 2000,
        "true ? " * 300 + "true" + " : true" * 300,
        '"' + "a" * 100_000 + '" == ""',
    ],
)
def test_deep_or_long_expressions_do_not_overflow(expression: str) -> None:
    outcome = _outcome(expression)
    assert isinstance(outcome, bool | CelError)


@pytest.mark.parametrize(
    "expression",
    [
        "lists.range(1000).all(a, lists.range(1000).all(b, a + b >= 0))",
        "lists.range(100000).map(x, lists.range(100000)).size() > 0",
        f'lists.range(1000).all(x, "{"b" * 1000}".contains("{"b" * 900}c") || true)',
    ],
)  # fmt: skip
def test_expensive_expression_runs_out_of_budget(expression: str) -> None:
    assert isinstance(_outcome(expression), BudgetExceededError)


@pytest.mark.parametrize(
    "expression",
    [
        "".join(f"cel.bind(a{n + 1}, a{n} + a{n}, " if n else "cel.bind(a1, [1, 2, 3, 4], "
                  for n in range(40)) + "size(a40) > 0" + ")" * 40,
        "".join(f"cel.bind(a{n + 1}, a{n} + a{n}, " if n else 'cel.bind(a1, "abcd", '
                for n in range(40)) + "size(a40) > 0" + ")" * 40,
        '"a"' + ('.replace("a", "' + "a" * 80 + '")') * 9 + ".size() > 0",
    ],
)  # fmt: skip
def test_growth_runs_out_of_budget_before_memory(expression: str) -> None:
    assert isinstance(_outcome(expression), BudgetExceededError)


def test_budget_is_not_absorbed() -> None:
    loop = "lists.range(1000).all(a, lists.range(1000).all(b, a + b >= 0))"
    assert isinstance(_outcome(f"{loop} || true"), BudgetExceededError)


def test_pattern_that_is_slow_elsewhere_is_not_here() -> None:
    assert _outcome('"' + "a" * 5000 + 'b".matches("^(a+)+$")') is False


@pytest.mark.parametrize(
    ("expression", "reads"),
    [
        ('device.attributes["d.org"].x == 1', {"d.org/x"}),
        ('device.attributes["d.org"]["x"] == 1 || has(device.attributes["d.org"].y)',
         {"d.org/x", "d.org/y"}),
        ('device.attributes["d.org"].?x.orValue(1) == 1', {"d.org/x"}),
        ('device.driver == "d.org" && device.capacity["d.org"].m == quantity("1")', set()),
        ('cel.bind(a, device.attributes["d.org"], a.x == 1 && has(a.y))', {"d.org/x", "d.org/y"}),
        ('cel.bind(a, device.attributes["d.org"], "x" in a)', None),
        ('cel.bind(a, device.attributes["d.org"], cel.bind(a, {"x": 1}, a.x == 1))', set()),
        ('cel.bind(device, {"attributes": {"d": {"x": 1}}}, device.attributes["d"].x == 1)', set()),
        ('device.attributes.exists(d, d == "d.org")', None),
    ],
)  # fmt: skip
def test_tells_which_attributes_it_reads(expression: str, reads: set[str] | None) -> None:
    assert compile_selector(expression).reads == reads


def test_attribute_with_its_domain_counts_before_the_bare_one() -> None:
    both = {"x": {"int": 1}, f"{_DRIVER}/x": {"int": 2}}
    seen = CelDevice.of(_DRIVER, decode(Device, {"name": "d", "attributes": both}))
    assert compile_selector(f'device.attributes["{_DRIVER}"].x == 2').matches(seen)


def test_attribute_of_an_unknown_kind_fails_whatever_is_asked() -> None:
    odd = Device(name="d", attributes={"odd": UnknownAttribute()})
    with pytest.raises(EvaluationError, match="attribute odd: unsupported attribute value"):
        compile_selector("true").matches(CelDevice.of(_DRIVER, odd))


@pytest.mark.parametrize(
    ("attribute", "is_supported"),
    [
        (StringAttribute("one"), True),
        (VersionAttribute("1.0.0"), True),
        (VersionAttribute("one"), False),
        (VersionsAttribute(("1.0.0", "one")), False),
        (UnknownAttribute(), False),
    ],
)
def test_device_is_supported_if_expressions_can_be_evaluated_for_it(
    attribute: DeviceAttribute, is_supported: bool
) -> None:
    seen = CelDevice.of(
        _DRIVER, Device(name="d", attributes={"x": attribute, "y": IntAttribute(1)})
    )
    assert seen.is_supported is is_supported
    if is_supported:
        assert compile_selector("true").matches(seen)
    else:
        with pytest.raises(EvaluationError, match="attribute x"):
            compile_selector("true").matches(seen)
    assert seen.is_supported is is_supported


@pytest.mark.parametrize(
    ("expression", "attribute"),
    [
        ("1 + 1", IntAttribute(2)),
        ('"a" + "b"', StringAttribute("ab")),
        ("1 < 2", BoolAttribute(value=True)),
        ('semver("v1.2.3-rc.1+b", true)', VersionAttribute("1.2.3-rc.1+b")),
        ("[1, 2]", IntsAttribute((1, 2))),
        ('["a"]', StringsAttribute(("a",))),
        ('[semver("1.2.3")]', VersionsAttribute(("1.2.3",))),
        ("[]", StringsAttribute(())),
    ],
)
def test_derived_attribute_has_a_type(expression: str, attribute: DeviceAttribute) -> None:
    assert compile_attribute(expression).evaluate(_seen()) == attribute


@pytest.mark.parametrize("expression", ["[1.5]", "1.5", 'quantity("1")'])
def test_derived_attribute_that_is_none_is_refused(expression: str) -> None:
    with pytest.raises(CompileError, match="must evaluate to"):
        compile_attribute(expression)


def test_many_threads_share_a_selector() -> None:
    selector = compile_selector("[1, 2, 3].all(x, x < 4) && device.attributes[device.driver].on")
    wrong: list[object] = []
    switch = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    seen = _seen()

    def ask() -> None:
        wrong.extend(True for _ in range(300) if selector.matches(seen) is not True)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(switch)
    assert wrong == []


@pytest.mark.parametrize("call", ['dyn(1).replace("a", "b")', "dyn(1).join()", 'dyn(1).find("a")'])
def test_call_of_another_kind_is_absorbed_where_it_is_counted(call: str) -> None:
    assert _outcome(f'{call} == "" || true') is True
    assert isinstance(_outcome(f'{call} == "" || false'), EvaluationError)
