"""The documents of a file: YAML as Kubernetes reads it, and JSON."""

from typing import Any

import pytest
import yaml

from carina_dra.manifests import yaml_document
from carina_dra.manifests.document import decode_text, documents
from carina_dra.manifests.yaml_document import MAX_DEPTH, DocumentError


@pytest.fixture(params=["CSafeLoader", "SafeLoader"])
def loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each parser of PyYAML: libyaml, and the one in Python where that is missing."""
    monkeypatch.setattr(yaml_document, "_LOADER", getattr(yaml, request.param))


def refusal(text: str) -> str:
    with pytest.raises(DocumentError) as caught:
        list(documents(text))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[8, +8, 1_000, 0x1F, 0o17, 017, -0b11]", [8, 8, 1000, 31, 15, 15, -3]),
        ("[1.5, 1e3, 08, .5]", [1.5, 1000.0, 8.0, 0.5]),
        ("[18446744073709551615, 18446744073709551616]", [2**64 - 1, float(2**64)]),
        ("[true, yes, On, y]", [True] * 4),
        ("[false, no, Off, n]", [False] * 4),
        ("[~, null, Null]", [None] * 3),
        ("['8', \"true\", !!str 8, !!str null]", ["8", "true", "8", "null"]),
        ("[!!int 8, !!float 8, !!null '']", [8, 8, None]),
        (
            "[2026-01-31T12:00:00Z, 2026-01-31, 1:30]",
            ["2026-01-31T12:00:00Z", "2026-01-31", "1:30"],
        ),
        ("[yesterday, 80Gi, 1.2.3, -, +]", ["yesterday", "80Gi", "1.2.3", "-", "+"]),
        ("{1: a, on: b, null: c}", {"1": "a", "on": "b", "null": "c"}),
        ("text: |\n  a\n  b\n", {"text": "a\nb\n"}),
        ("", None),
    ],
)
def test_yaml_has_the_values_that_kubernetes_reads(text: str, value: object, loader: None) -> None:
    read = list(documents(text)) or [None]
    assert read == [value]
    assert [type(each) for each in _leaves(read)] == [type(each) for each in _leaves([value])]


def _leaves(value: Any) -> list[object]:
    match value:
        case dict():
            return [leaf for each in value.values() for leaf in _leaves(each)]
        case list():
            return [leaf for each in value for leaf in _leaves(each)]
        case _:
            return [value]


def test_a_number_of_any_length_is_read(loader: None) -> None:
    assert list(documents("9" * 5_000)) == ["9" * 5_000]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: &x {b: 1}\nc: *x", {"a": {"b": 1}, "c": {"b": 1}}),
        ("a: &x b\n*x : 1", {"a": "b", "b": 1}),
        ("&k a: 1\nb: *k", {"a": 1, "b": "a"}),
        ("a: &x {b: 1, c: 2}\nd: {<<: *x, b: 3}", {"a": {"b": 1, "c": 2}, "d": {"b": 3, "c": 2}}),
        ("a: {<<: [{b: 1}, {b: 2, c: 2}]}", {"a": {"b": 1, "c": 2}}),
    ],
)
def test_aliases_and_merges_are_resolved(text: str, value: object, loader: None) -> None:
    assert list(documents(text)) == [value]


def test_anchors_belong_to_their_document(loader: None) -> None:
    assert "line 3, column 1: the anchor &x does not exist" in refusal("&x a\n---\n*x")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: 1\nb: 2\na: 3", "is not valid YAML: line 3, column 1: the key 'a' occurs twice"),
        ("a: &x [*x]", "line 1, column 8: the anchor &x contains itself"),
        ("{[a]: 1}", "line 1, column 2: a key is not a string"),
        ("a: &x [b]\n*x : 1", "line 2, column 1: a key is not a string"),
        ("a: !python/object:os.system x", "the tag !python/object:os.system is not supported"),
        ("!!set {a}", "the tag tag:yaml.org,2002:set is not supported"),
        ("!!binary aGk=", "the tag tag:yaml.org,2002:binary is not supported"),
        ("!!int many", "'many' is not int"),
        (".inf", ".inf is not a number of JSON"),
        ("{<<: 1}", "<< is not a map, or a list of maps"),
        ("a: [", "is not valid YAML: line "),
        ("a: b: c", "line 1, column 5: mapping values are not allowed"),
        ("ok: 1\n\x00ELF", "line 2: character U+0000 is not allowed; is this text?"),
    ],
)
def test_what_is_wrong_in_yaml_is_named_with_its_line(
    text: str, problem: str, loader: None
) -> None:
    assert problem in refusal(text)


@pytest.mark.parametrize("opening", ["[", "{a: ", "- "])
def test_deep_yaml_is_refused(opening: str, loader: None) -> None:
    assert f"nested more than {MAX_DEPTH} levels deep" in refusal(opening * 1_000)


def test_yaml_is_read_up_to_the_limit_of_depth(loader: None) -> None:
    assert list(documents("[" * MAX_DEPTH + "]" * MAX_DEPTH))


def test_a_short_text_cannot_become_a_huge_document(loader: None) -> None:
    lines = ["a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    lines += [
        f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]" for level in range(1, 30)
    ]
    assert "aliases repeat more than 1,000,000 values" in refusal("\n".join(lines))


def test_json_documents_may_follow_each_other() -> None:
    assert list(documents(' {"a": 1}\n{"b": [2.5, null]} ')) == [{"a": 1}, {"b": [2.5, None]}]


@pytest.mark.parametrize("text", ["{a: 1}", "{}", '- {"a": 1}'])
def test_what_does_not_begin_with_an_object_and_a_quote_is_yaml(text: str) -> None:
    assert list(documents(text)) == [yaml.safe_load(text)]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"a":\n 1 "b"}', "is not valid JSON: line 2, column 4: Expecting ',' delimiter"),
        ('{"a": 1,}', "is not valid JSON: line 1, column "),
        ('{"a": 1}\n---\nb: 2', "is not valid JSON: line 2, column 1: Expecting value"),
        ('{"a": {"b": 1, "b": 2}}', "the key 'b' occurs twice in {'b': 2}"),
        ('{"a": NaN}', "NaN is not a number of JSON"),
        ('{"a": ' + "9" * 5_000 + "}", "a number has too many digits"),
        ('{"a": ' * 100_000, "it is nested too deeply"),
    ],
)
def test_what_is_wrong_in_json_is_named(text: str, problem: str) -> None:
    assert problem in refusal(text)


@pytest.mark.parametrize("text", [r'{"a": ["\ud83d\ude00"]}', r'a: "\U0001F600"'])
def test_a_character_may_be_escaped(text: str, loader: None) -> None:
    [read] = documents(text)
    assert "\U0001f600" in str(read)


def test_half_a_character_is_refused() -> None:
    assert refusal(r'{"a": ["\ud83d"]}') == r"a string has \ud83d, which is half a character"


def test_half_a_character_is_refused_in_yaml(loader: None) -> None:
    refusal(r'a: "\ud83d"')


def test_text_may_have_a_byte_order_mark() -> None:
    assert decode_text(b"\xef\xbb\xbfa: 1") == "a: 1"


def test_what_is_no_text_is_named_with_its_line() -> None:
    with pytest.raises(DocumentError, match=r"line 2: byte 0xFF is not UTF-8; is this text\?"):
        decode_text(b"a: 1\n\xff\xfe")
