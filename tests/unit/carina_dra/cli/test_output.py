"""What commands print."""

import json
from argparse import ArgumentParser

import pytest
import yaml

from carina_dra.cli.output import OutputFormat, add_output_argument, render

_SHARED = {"kind": "GpuConfig"}
_DOCUMENT = {"second": 2, "first": [_SHARED, _SHARED]}


@pytest.mark.parametrize(
    ("output", "text"),
    [
        (OutputFormat.TABLE, "A\nB"),
        (OutputFormat.JSON, json.dumps(_DOCUMENT, indent=2)),
        (OutputFormat.YAML, "second: 2\nfirst:\n- kind: GpuConfig\n- kind: GpuConfig"),
    ],
)
def test_a_result_in_each_format(output: OutputFormat, text: str) -> None:
    assert render(output, document=_DOCUMENT, table=["A", "B"]) == text


def test_what_others_wrote_does_nothing_to_the_terminal() -> None:
    text = render(OutputFormat.TABLE, document={}, table=["a\x1b[2Jb\rc\n\u202ed", "é 日"])
    assert text == "a\\x1b[2Jb\\rc\\n\\u202ed\né 日"


def test_json_and_yaml_say_the_same() -> None:
    as_json = render(OutputFormat.JSON, document=_DOCUMENT, table=())
    as_yaml = render(OutputFormat.YAML, document=_DOCUMENT, table=())
    assert json.loads(as_json) == yaml.safe_load(as_yaml) == _DOCUMENT


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        ([], OutputFormat.TABLE),
        (["-o", "json"], OutputFormat.JSON),
        (["--output", "yaml"], OutputFormat.YAML),
    ],
)
def test_the_format_is_an_argument(arguments: list[str], output: OutputFormat) -> None:
    parser = ArgumentParser()
    add_output_argument(parser)
    assert OutputFormat(parser.parse_args(arguments).output) is output


def test_another_format_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    parser = ArgumentParser()
    add_output_argument(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(["-o", "xml"])
    assert "choose from 'table', 'json', 'yaml'" in capsys.readouterr().err
