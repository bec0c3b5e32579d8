"""`carina simulate` and `carina why`: arguments, output and exit codes."""

import json
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from carina_dra.cli import command
from controller.commands import listed
from tests.unit.controller.engine.simulate.scenarios import scenario

_COMMANDS = {"simulate": listed.SIMULATE, "why": listed.WHY}
_JOB = {"duration": "1m", "gpus": 1}


def write(path: Path, document: Any) -> str:
    path.write_text(json.dumps(document))
    return str(path)


def run(*words: str) -> int:
    return command.run(words, _COMMANDS)


def test_the_document_has_every_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "s.json", scenario(_JOB))
    assert run("simulate", "-f", path, "-o", "json") == 0
    document = json.loads(capsys.readouterr().out)
    ((job,), summary) = document["jobs"], document["summary"]
    assert (job["job"], job["started"], job["ended"]) == ("q/j0", 0, 60)
    assert [each["outcome"] for each in job["runs"]] == ["ended"]
    assert summary["utilisation"] == 0.25


def test_two_policies_are_shown_side_by_side(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "s.json", scenario(_JOB, _JOB))
    assert run("simulate", "-f", path, "--compare", "spread", "-o", "json") == 0
    simulations = json.loads(capsys.readouterr().out)["simulations"]
    nodes = [{run["node"] for job in each["jobs"] for run in job["runs"]} for each in simulations]
    assert [each["policy"] for each in simulations] == ["balanced", "spread"]
    assert [len(each) for each in nodes] == [1, 2]


def test_the_picture_is_svg(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, picture = write(tmp_path / "s.json", scenario(_JOB)), tmp_path / "s.svg"
    assert run("simulate", "-f", path, "--svg", str(picture), "--compare", "spread") == 0
    root = ET.fromstring(picture.read_text())
    namespace = "{http://www.w3.org/2000/svg}"
    titles = [each.text for each in root.iter(f"{namespace}text")]
    assert "s, balanced: 25.0% of the GPUs in use" in titles
    assert "s, spread: 25.0% of the GPUs in use" in titles
    assert len(list(root.iter(f"{namespace}polygon"))) == 4


def test_a_png_needs_matplotlib(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    path = write(tmp_path / "s.json", scenario(_JOB))
    assert run("simulate", "-f", path, "--png", str(tmp_path / "s.png")) == 2
    assert capsys.readouterr().err == (
        "carina simulate: a PNG needs matplotlib; install carina-dra[plot], or write an SVG\n"
    )


def test_it_ends_when_the_command_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "s.json", scenario(_JOB))
    assert run("simulate", "-f", path, "--until", "30s", "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["end"] == 30


@pytest.mark.parametrize("name", ["simulate", "why"])
def test_a_file_that_is_not_valid_is_refused(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "s.json", {"kind": "Scenari"})
    group = ["a/g"] if name == "why" else []
    assert run(name, "-f", path, *group) == 2
    assert capsys.readouterr().err.startswith(f"carina {name}: {path}")


@pytest.mark.parametrize("words", [["--until", "soon"], ["--policy", "tight"], ["--seed", "x"]])
def test_an_argument_that_is_not_valid_is_refused(words: list[str]) -> None:
    with pytest.raises(SystemExit) as end:
        run("simulate", "-f", "s.yaml", *words)
    assert end.value.code == 2


def test_a_file_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("simulate", "-f", "nowhere.yaml") == 2
    assert capsys.readouterr().err == (
        "carina simulate: nowhere.yaml: cannot be read: No such file or directory\n"
    )


@pytest.mark.parametrize(
    ("group", "code"), [("vision/train", 3), ("vision/label", 0), ("vision/other", 2)]
)
def test_the_exit_code_says_whether_the_group_waits(
    group: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(__file__).parents[4] / "deploy" / "scenarios" / "waiting-group.yaml"
    assert run("why", "-f", str(path), group) == code
