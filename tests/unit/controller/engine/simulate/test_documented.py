"""What docs/simulate.md and docs/commands.md show is what the commands print."""

import re
from pathlib import Path

import pytest

from carina_dra.cli import command
from carina_dra.cli.command import ListedCommand
from controller.commands import listed

_ROOT = Path(__file__).parents[5]
_SCENARIOS = _ROOT / "deploy" / "scenarios"
_DOCS = (_ROOT / "docs" / "simulate.md").read_text()
_ALL_DOCS = _DOCS + (_ROOT / "docs" / "commands.md").read_text()
COMMANDS: dict[str, ListedCommand] = {
    "free": listed.FREE,
    "queue": listed.QUEUE,
    "simulate": listed.SIMULATE,
    "why": listed.WHY,
}
_SHOWN = re.compile(r"^`carina ([^`]+)`[^`]*\n```\n(.*?)```$", re.MULTILINE | re.DOTALL)


def shown(words: str) -> str:
    """What the docs show below a command."""
    (text,) = (text for of, text in _SHOWN.findall(_ALL_DOCS) if of == words)
    return str(text)


@pytest.mark.parametrize(
    "words",
    [
        "simulate -f deploy/scenarios/two-teams.yaml",
        "simulate -f deploy/scenarios/consolidation.yaml --compare spread",
        "simulate -f deploy/scenarios/consolidation.yaml",
        "free -f deploy/scenarios/waiting-group.yaml",
        "queue -f deploy/scenarios/waiting-group.yaml",
        "why -f deploy/scenarios/waiting-group.yaml vision/train",
    ],
)
def test_the_output_is_as_documented(
    words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(_ROOT)
    command.run(words.split(), COMMANDS)
    assert capsys.readouterr().out == shown(words)


def test_every_scenario_that_ships_is_documented() -> None:
    assert {path.name for path in _SCENARIOS.iterdir()} == set(
        re.findall(r"deploy/scenarios/([a-z-]+\.yaml)", _DOCS)
    )
