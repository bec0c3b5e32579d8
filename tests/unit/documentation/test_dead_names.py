"""What the pages name exists: commands and their flags, metrics, settings, names and Events.

The pages written by hand are compared with the reference, which is generated from the code.
"""

import re
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from carina_dra.cli.command import installed
from controller.settings import Settings
from documentation.reference import commands, events, metrics, names
from kubelet_plugin.settings import PluginSettings

_ROOT: Final = Path(__file__).parents[3]
_DOCS: Final = _ROOT / "docs"
_PAGES: Final = sorted([_ROOT / "README.md", *_DOCS.glob("*.md")])
_COMMAND: Final = re.compile(
    r"(?:^|`|\$ |-- |kubectl )carina (?P<name>[a-z]+)(?P<rest>[^`\n|#]*)", re.MULTILINE
)
_FLAG: Final = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")
_METRIC: Final = re.compile(r"`(carina_[a-z_]+)(?=[`{])")
_NAME: Final = re.compile(r"`(scheduling\.carina\.dev/(?!v\d)[a-z-]+)")
_REASON: Final = re.compile(r"`([A-Z][a-z]*(?:[A-Z]+[a-z]+)+)`")
_TROUBLE: Final = "troubleshooting.md"
_OF_KUBERNETES: Final = {
    *("ContainerCreating", "SchedulingGated"),  # what kubectl shows of a pod
    *("FailedScheduling", "FailedPrepareDynamicResources"),  # kube-scheduler's and the kubelet's
}
_CONDITIONS: Final = {"GivesBack", "BudgetsRefuse", "PodsDoNotEnd", "QuotasCovered"}
"""Of Queues; docs/commands.md lists them."""


def _series(metric: str) -> set[str]:
    return {metric + suffix for suffix in ("", "_bucket", "_sum", "_count")}


METRICS: Final = {
    series
    for metric in re.findall(r"^\| `(\w+)`", metrics.page(), re.MULTILINE)
    for series in _series(metric)
}
REASONS: Final = {
    row.reason
    for rows in (events.waiting_events(), events.controller_events(), events.plugin_events())
    for row in rows
}


def _parser(name: str) -> ArgumentParser:
    parser = ArgumentParser()
    installed()[name].load().add_arguments(parser)
    return parser


def _dead_commands(text: str) -> Iterator[str]:
    for match in _COMMAND.finditer(text):
        name = match["name"]
        if name not in installed():
            yield f"carina {name}"
            continue
        known = {
            option
            for action in commands.arguments(_parser(name))
            for option in action.option_strings
        }
        yield from (
            f"carina {name} {flag}"
            for flag in _FLAG.findall(match["rest"])
            if flag not in known | {"-h", "--help"}
        )


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.name)
def test_commands_and_flags_exist(page: Path) -> None:
    assert list(_dead_commands(page.read_text())) == []


@pytest.mark.parametrize(
    ("text", "dead"),
    [
        ("`carina free --class x`", []),
        ("`carina freee`", ["carina freee"]),
        ("`carina free --klass x`", ["carina free --klass"]),
        ("\nkubectl carina why a/b --until 3h\n", ["carina why --until"]),
        ("\n$ carina why a/b --until 3h\n", ["carina why --until"]),
    ],
)
def test_a_dead_command_is_found(text: str, dead: list[str]) -> None:
    assert list(_dead_commands(text)) == dead


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.name)
def test_metrics_exist(page: Path) -> None:
    assert set(_METRIC.findall(page.read_text())) - METRICS == set()


def test_a_dead_metric_is_found() -> None:
    found = set(
        _METRIC.findall("`carina_gone_total{reason}`, `carina_devices`, `carina_dra-1.whl`")
    )
    assert found - METRICS == {"carina_gone_total"}


@pytest.mark.parametrize("page", _PAGES, ids=lambda page: page.name)
def test_labels_annotations_and_finalizers_exist(page: Path) -> None:
    known = names.page()
    assert {name for name in _NAME.findall(page.read_text()) if f"`{name}`" not in known} == set()


def test_reasons_of_events_exist() -> None:
    text = (_DOCS / _TROUBLE).read_text()
    assert set(_REASON.findall(text)) - REASONS - _OF_KUBERNETES == _CONDITIONS


def test_conditions_are_those_that_the_commands_page_lists() -> None:
    text = (_DOCS / "commands.md").read_text()
    assert {condition for condition in _CONDITIONS if f"`{condition}`" not in text} == set()


def test_every_event_that_asks_somebody_to_act_is_a_symptom() -> None:
    """A warning that is on no page leaves its reader alone."""
    warnings = {
        row.reason
        for rows in (events.waiting_events(), events.controller_events(), events.plugin_events())
        for row in rows
        if row.type == "Warning"
    }
    text = (_DOCS / _TROUBLE).read_text()
    assert {reason for reason in warnings if f"`{reason}`" not in text} == set()


def test_settings_exist() -> None:
    known = set(PluginSettings.model_fields) | set(Settings.model_fields)
    text = (_DOCS / _TROUBLE).read_text()
    named = set(re.findall(r"settings? `([a-z_]+)`", text))
    assert named
    assert named - known == set()
