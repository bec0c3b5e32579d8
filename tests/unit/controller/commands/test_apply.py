"""`carina apply`: what it refuses before it asks the cluster."""

from pathlib import Path

import pytest

from carina_dra.cli import command
from controller.commands import listed

_QUEUE = "apiVersion: scheduling.carina.dev/v1alpha1\nkind: Queue\nmetadata: {name: a}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{_QUEUE}---\nkind: Pod\n", "document 2: is no Queue of scheduling.carina.dev/v1alpha1"),
        ("- a\n", "document 1: is no Queue"),
        ("a: [", "while parsing"),
        (
            f"{_QUEUE}spec: {{resources: [{{gpus: {{}}, qouta: 1}}]}}\n",
            "document 1: spec.resources[0].qouta: is not a",
        ),
        (f"{_QUEUE}spec: {{parent: a}}\n", "document 1: spec.parent is the queue itself"),
    ],
)
def test_file_that_is_not_valid_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    file = tmp_path / "queues.yaml"
    file.write_text(text)

    assert command.run(("apply", "-f", str(file)), {"apply": listed.APPLY}) == 2

    captured = capsys.readouterr()
    assert captured.err.startswith(f"carina apply: {file}")
    assert message in captured.err
    assert captured.out == ""


def test_file_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.run(("apply", "-f", "/none.yaml"), {"apply": listed.APPLY}) == 2

    assert capsys.readouterr().err.startswith("carina apply: /none.yaml: cannot be read")
