"""Every expression ends by itself, with bounded cost and memory: selectors come from tenants.

The expressions that exceed a limit here are short, and most of them pass the API server's estimate.
"""

import tracemalloc
from contextlib import suppress
from typing import Any

import pytest

from carina_dra.cel import (
    BudgetExceededError,
    CelDevice,
    CelError,
    CompileError,
    EvaluationError,
    Meter,
    compile_attribute,
    compile_selector,
)
from carina_dra.cel.budget import LIMIT
from carina_dra.cel.functions import FUNCTIONS
from carina_dra.cel.functions.overload import Overload
from carina_dra.cel.types import Type
from carina_dra.cel.values import NamedFormat, Optional, Url
from carina_dra.resource import Device, decode

_MIB = 1 << 20
_LARGE = 10_000


def _device() -> CelDevice:
    attributes = {"model": {"string": "A"}, "tags": {"strings": ["a", "b"]}}
    return CelDevice.of("d.org", decode(Device, {"name": "d", "attributes": attributes}))


def _outcome(expression: str, meter: Meter | None = None) -> bool | CelError:
    try:
        return compile_selector(expression).matches(_device(), meter)
    except CelError as error:
        return error


def _chain(first: str, step: str, count: int, last: str) -> str:
    """Nested `cel.bind`, in which `@` stands for the variable before."""
    text = f"cel.bind(a0, {first}, "
    for index in range(count):
        text += f"cel.bind(a{index + 1}, {step.replace('@', f'a{index}')}, "
    return text + last.replace("@", f"a{count}") + ")" * (count + 1)


_SHARED = [
    "@ == @",
    "@ != @",
    "@ < @",
    "@ in [@]",
    "[@] == [@]",
    "[@].indexOf(@) == 0",
    "[@].lastIndexOf(@) == 0",
    "[@, @].distinct().size() == 1",
    "sets.contains([@], [@])",
    "sets.equivalent([@], [@])",
    "sets.intersects([@], [@])",
    "@.includes(@)",
    "@.flatten(50).size() > 0",
    "@.min() == 1",
    "@.isSorted()",
    "'%s'.format([@]) == ''",
    "{'a': @} == {'a': @}",
    "optional.of(@) == optional.of(@)",
    "[@].all(x, x == @)",
    "{'a': @}.transformMap(k, v, v) == {'a': @}",
]


@pytest.mark.parametrize("use", _SHARED)
def test_visit_of_a_structure_that_shares_parts_is_charged_for_each_part(use: str) -> None:
    outcome = _outcome(_chain("dyn([1])", "dyn([@, @])", 40, use))
    assert isinstance(outcome, BudgetExceededError)


@pytest.mark.parametrize("use", ["@ == @", "@ in [@]", "@.flatten(50).size() > 0"])
def test_structure_that_shares_parts_is_charged_if_its_type_is_known(use: str) -> None:
    outcome = _outcome(_chain("[1]", "[@, @]", 40, use))
    assert isinstance(outcome, BudgetExceededError)


@pytest.mark.parametrize(
    ("use", "answer"),
    [
        ("@.size() == 2", True),
        ("type(@) == list", True),
        ("@ in {'a': 1}", False),
        ("optional.of(@).hasValue()", True),
        ("has({'a': @}.a)", True),
    ],
)
def test_what_visits_no_part_of_a_structure_is_cheap(use: str, answer: object) -> None:
    meter = Meter()
    assert _outcome(_chain("dyn([1])", "dyn([@, @])", 40, use), meter) is answer
    assert meter.spent < 2_000


@pytest.mark.parametrize(
    "use", ["{'a': 1}[@] == 1", "{@: 1}.size() == 1", "int(@) == 1", "@ == 1 || @.x == 1"]
)
def test_error_about_a_structure_is_short(use: str) -> None:
    outcome = _outcome(_chain("dyn([1])", "dyn([@, @])", 40, use))
    assert isinstance(outcome, EvaluationError)
    assert len(str(outcome)) < 200


_GROWING = [
    ("'xxxxxxxxxxxx'", "'%s%s%s%s'.format([@, @, @, @])"),
    ("'xxxxxxxxxxxx'", "'%s'.format([[@, @, @, @]])"),
    ("'xxxxxxxxxxxx'", "'%x%X'.format([@, @])"),
    ("'xxxxxxxxxxxx'", "@ + @"),
    ("'\U0001f600'", "@ + @"),
    ("b'xxxxxxxxxxxx'", "@ + @"),
    ("[1]", "@ + @"),
    ("'xxxxxxxxxxxx'", "[@, @, @].join(@)"),
    ("'xxxxxxxxxxxx'", "@.replace('x', @)"),
    ("'xxxxxxxxxxxx'", "@.replace('', @)"),
    ("'\\n\\n\\n'", "strings.quote(@ + @)"),
    ("'\\n\\n\\n'", "'%s'.format([[@, @]])"),
    ("[1, 2, 3]", "@.map(x, @).flatten()"),
]


@pytest.mark.parametrize(("first", "step"), _GROWING)
def test_growth_ends_before_memory_does(first: str, step: str) -> None:
    selector = compile_selector(_chain(first, step, 30, "@.size() > 0"))
    device = _device()
    tracemalloc.start()
    try:
        with pytest.raises(BudgetExceededError):
            selector.matches(device)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 * _MIB


@pytest.mark.parametrize(
    "expression",
    [
        "lists.range(1000000).size() > 0",
        "lists.range(300000).map(x, x + 1000).size() > 0",
        "lists.range(300000).filter(x, x > -1).size() > 0",
        "lists.range(300000).transformMap(i, x, x + 1000).size() > 0",
        "lists.range(300000).map(x, string(x)).size() > 0",
        "lists.range(300000).map(x, [x]).size() > 0",
        "lists.range(150000).map(x, optional.of(x)).size() > 0",
        "lists.range(300000).map(x, semver('1.0.' + string(x) + '-" + ".".join(["ab"] * 80)
        + "')).size() > 0",
        _chain("'\U0001f600'", "@ + @", 18, "(@ + 'a' + @).split('a').size() > 0"),
        "lists.range(300000).map(x, {x: x}).size() > 0",
        "lists.range(300000).map(x, ["
        + ", ".join(["1"] * 3000)
        + "]).size() > 0",
        _chain("'\u20ac\u20ac\u20ac\u20ac'", "@ + @", 16, "@.split('').size() > 0"),
        _chain("'a&a&a&a&a&a&'", "@ + @", 16, "url('/?' + @).getQuery().size() > 0"),
    ],
    ids=lambda expression: expression[:60],
)  # fmt: skip
def test_memory_of_an_evaluation_is_limited(expression: str) -> None:
    selector = compile_selector(expression)
    device = _device()
    tracemalloc.start()
    try:
        with suppress(BudgetExceededError):
            selector.matches(device)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 * _MIB


@pytest.mark.parametrize(
    "expression",
    [
        "lists.range(30000).distinct().size() > 0",
        "sets.contains(lists.range(30000), lists.range(30000))",
        "sets.equivalent(lists.range(30000), lists.range(30000))",
        "cel.bind(l, lists.range(3000), l.all(x, x in l))",
        "cel.bind(l, lists.range(3000), l.all(x, l == l))",
        "cel.bind(m, lists.range(30000).transformMap(i, x, x), lists.range(30000).all(x, m == m))",
        _chain("'aaaaaaaaaaaaaaaa'", "@ + @", 12, "@.lastIndexOf('ab' + @.substring(30000)) > 0"),
        _chain("'aaaaaaaaaaaaaaaa'", "@ + @", 12, "@.findAll('a.*b|a').size() > 0"),
        _chain("'aaaaaaaaaaaaaaaa'", "@ + @", 12, "lists.range(999).map(x, @).sort() == []"),
        "lists.range(9999).all(x, 'a'.matches('a{900}' + string(x)) || true)",
        "'a'.matches('(?i)' + '" + "\\\\pL" * 1000 + "')",
    ],
    ids=lambda expression: expression[:60],
)
def test_work_that_grows_faster_than_its_arguments_is_charged(expression: str) -> None:
    assert isinstance(_outcome(expression), BudgetExceededError)


@pytest.mark.parametrize(
    ("body", "least"),
    [
        ("true", 3),
        ("true && " * 1000 + "true", 300),
        ("(true ? true : false) && " * 300 + "true", 300),
        ("[" + "1, " * 1000 + "1].size() > 0", 1000),
        ("{" + ", ".join(f"{key}: 1" for key in range(500)) + "}.size() > 0", 2500),
        ("1 / 0 > 0 || true", 10),
        ("isIP(string(x)) || true", 20),
        ("isCIDR(string(x)) || true", 20),
        ("isSemver(string(x)) || true", 20),
        ("isQuantity(string(x))", 20),
        ("isURL(string(x)) || true", 20),
        ("timestamp(x).getHours() >= 0", 5),
        ("timestamp(x).getHours('Europe/Berlin') >= 0", 500),
        ("'%s'.format([x]) != ''", 10),
        ("'%.900f'.format([1.5]) != ''", 900),
        ("'%s'.format([[x, x, x]]) != ''", 32),
        ("'" + "a" * 2000 + "'.substring(1).size() > 0", 499),
        ("lists.range(1000).slice(0, 1000).size() > 0", 4000),
        ("string(x).matches('[0-9]{500}') || true", 10),
        ("device.attributes['d.org'].tags.all(y, y == y)", 6),
    ],
    ids=lambda value: str(value)[:60],
)
def test_iteration_costs_at_least_what_its_parts_take(body: str, least: int) -> None:
    one, eleven = Meter(), Meter()
    assert _outcome(f"lists.range(1).all(x, {body})", one) is True
    assert _outcome(f"lists.range(11).all(x, {body})", eleven) is True
    assert eleven.spent - one.spent >= 10 * least


_READS_NO_PART = {
    "size", "dyn", "type", "optional.of", "optional.ofNonZeroValue", "hasValue", "value", "or",
    "orValue", "first", "last", "getScheme", "getHost",
}  # fmt: skip
_REFUSES_LONG_TEXTS = {
    "duration", "timestamp", "quantity", "isQuantity", "semver", "isSemver", "ip", "isIP",
    "ip.isCanonical", "cidr", "isCIDR", "containsIP", "containsCIDR",
    *(name for name in FUNCTIONS if name.startswith("get")),
}  # fmt: skip
_CHARGES_ITSELF = {
    "format",
    *(name for name in FUNCTIONS if name.endswith(("matches", "find", "findAll"))),
}


def _large(type_: Type) -> Any:
    match type_.name:
        case "string":
            return "a" * _LARGE
        case "bytes":
            return b"a" * _LARGE
        case "list" | "dyn" | "?A":
            return ("a",) * _LARGE
        case "map" | "?B":
            return {str(index): index for index in range(_LARGE)}
        case "optional_type":
            return Optional((("a",) * _LARGE,))
        case "int":
            return _LARGE
        case "kubernetes.URL":
            return Url("http", "a" * _LARGE, "a" * _LARGE, ())
        case "kubernetes.NamedFormat":
            return NamedFormat("dns1123Label")
        case _:
            return None


_CHARGES_FOR_ITS_RESULT = {"substring", "slice"}


def _is_large(type_: Type) -> bool:
    return isinstance(_large(type_), str | bytes | tuple | dict | Optional | Url)


_CHARGED = [
    overload
    for overloads in FUNCTIONS.values()
    for overload in overloads
    if any(map(_is_large, overload.parameters))
    and overload.name
    not in _READS_NO_PART | _REFUSES_LONG_TEXTS | _CHARGES_ITSELF | _CHARGES_FOR_ITS_RESULT
    and (overload.name, overload.parameters[-1].name) not in {("@in", "map"), ("bytes", "bytes")}
]


@pytest.mark.parametrize(
    "overload", _CHARGED, ids=lambda each: f"{each.name}({', '.join(map(str, each.parameters))})"
)
def test_call_with_large_arguments_has_a_large_cost(overload: Overload) -> None:
    assert overload.cost(*map(_large, overload.parameters)) >= _LARGE // 10


@pytest.mark.parametrize(
    "call",
    [
        "duration(@)", "timestamp(@)", "quantity(@)", "semver(@)", "semver(@, true)", "ip(@)",
        "cidr(@)", "cidr('10.0.0.0/8').containsIP(@)", "cidr('10.0.0.0/8').containsCIDR(@)",
        "timestamp(1).getHours(@)", "ip.isCanonical(@)", "double(@)", "int(@)", "uint(@)",
        "bool(@)",
    ],
)  # fmt: skip
def test_long_text_is_refused_with_a_short_error(call: str) -> None:
    outcome = _outcome(_chain("'1111'", "@ + @", 12, f"dyn({call}) == 1"))
    assert isinstance(outcome, EvaluationError)
    assert not isinstance(outcome, BudgetExceededError)
    assert len(str(outcome)) < 250


@pytest.mark.parametrize(
    "test", ["isQuantity(@)", "isSemver(@)", "isSemver(@, true)", "isIP(@)", "isCIDR(@)"]
)
def test_long_text_is_no_value_of_a_type(test: str) -> None:
    assert _outcome(_chain("'1111'", "@ + @", 12, test)) is False


_DIGITS = "1" * 5000


@pytest.mark.parametrize(
    "expression",
    [
        f"{_DIGITS} > 1",
        f"-{_DIGITS} < 1",
        f"{_DIGITS}u > 1u",
        f"0x{_DIGITS} > 1",
        f"{_DIGITS}e5000 > 1.0",
        f'quantity("{_DIGITS}").isInteger()',
        f'quantity("0.{_DIGITS}").isInteger()',
        f'quantity("1e{_DIGITS}").isInteger()',
        f'semver("{_DIGITS}.0.0") == semver("1.0.0")',
        f'semver("1.0.0-{_DIGITS}") == semver("1.0.0")',
        f'semver("v{_DIGITS}", true) == semver("1.0.0")',
        f'duration("{_DIGITS}s") > duration("1s")',
        f'duration("0.{_DIGITS}s") > duration("1s")',
        f'timestamp("2000-01-01T00:00:00.{_DIGITS}Z") > timestamp(1)',
        f'int("{_DIGITS}") > 1',
        f'uint("{_DIGITS}") > 1u',
        f'double("{_DIGITS}") > 1.0',
        f'cidr("10.0.0.0/{_DIGITS}") == cidr("10.0.0.0/8")',
        f'"%.{_DIGITS}f".format([1.5]) == "" || 1 / 0 == 1',
    ],
    ids=lambda expression: expression[:20],
)
def test_number_of_many_digits_is_an_error_of_the_expression(expression: str) -> None:
    assert isinstance(_outcome(expression), CelError)


@pytest.mark.parametrize("literal", ["0" * 5000 + "7", "0x" + "0" * 5000 + "7"])
def test_leading_zeros_of_an_integer_count_for_nothing(literal: str) -> None:
    assert _outcome(f"{literal} == 7") is True


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        (_chain("{'a': 1}", "{@: @}", 30, "@ == @"), "a type is nested too deeply"),
        (_chain("{'a': 1}", "{@: @}", 30, "@ + 1"), "a type is nested too deeply"),
        ("'a'.matches('(?i)" + "\\\\pL" * 1000 + "')", "the regular expressions are too complex"),
        ("'a'.matches('" + "\\\\pL{90}" * 10 + "')", "pattern too large"),
        (" || ".join(f"'a'.matches('{i}')" for i in range(50)), "more than 32 regular expressions"),
        ("'" + "a" * 20_000 + "' == ''", "has 20008 bytes, and 10240 are allowed"),
        ("(" * 100 + "true" + ")" * 100, "recursion limit exceeded"),
        ("'a'.matches()", "found no matching overload"),
        ("'a'.format()", "found no matching overload"),
    ],
    ids=lambda text: text[:40],
)
def test_what_takes_too_long_to_compile_is_refused(expression: str, problem: str) -> None:
    with pytest.raises(CompileError, match=problem) as refusal:
        compile_selector(expression)
    assert len(str(refusal.value)) < 500


def test_nested_templates_are_compiled_once_each() -> None:
    assert _outcome("'%s'.format([" * 25 + "1" + "])" * 25 + " == '1'") is True


@pytest.mark.parametrize("zone", ["Europe", "../../etc/passwd", "/etc/passwd", "Foo/Bar", "a\0b"])
def test_time_zone_that_is_no_file_of_the_database_is_an_error(zone: str) -> None:
    outcome = _outcome(f"timestamp(1).getHours({zone!r}) >= 0".replace("\\x00", "\\0" + "00"))
    assert "unknown time zone" in str(outcome)


def test_long_chain_of_operators_takes_no_stack() -> None:
    assert _outcome("+".join(["1"] * 3000) + " == 3000") is True


@pytest.mark.parametrize(
    "expression", ["lists.range(2000)", "'a'.replace('a', '" + "b" * 5000 + "')"]
)
def test_derived_attribute_has_a_limited_size(expression: str) -> None:
    with pytest.raises(EvaluationError, match="too large for a derived attribute"):
        compile_attribute(expression).evaluate(_device())


def test_failed_evaluation_is_metered_up_to_the_limit() -> None:
    meter = Meter()
    assert isinstance(_outcome("lists.range(400000).size() > 0", meter), BudgetExceededError)
    assert meter.spent == LIMIT
