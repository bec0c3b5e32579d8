"""The reference has everything of its kind that the code has.

That the committed pages are those that the code gives is checked by `python -m deploy.generate
--check`, in `make lint`.
"""

import inspect
import re
from argparse import ArgumentParser
from pathlib import Path
from typing import get_args

import pytest
from prometheus_client import CollectorRegistry, Counter

from carina_dra.cli.command import installed
from controller import names
from controller.report.notice import GroupWaits, Notice
from documentation.reference import commands, devices, events, metrics
from documentation.reference import names as names_page
from documentation.reference.docstrings import constants
from kubelet_plugin.claims.drift import Drift
from kubelet_plugin.devices.device import GpuDevice
from kubelet_plugin.inventory.change import InventoryChange
from kubelet_plugin.report.claim import ClaimReport
from kubelet_plugin.report.node import NodeReport

_ROOT = Path(__file__).parents[3]


def test_every_notice_of_the_controller_is_shown() -> None:
    shown = {type(notice) for _, notice in events.NOTICES}
    assert shown | {GroupWaits} == set(get_args(Notice))


def test_every_change_of_the_gpus_is_shown() -> None:
    assert {type(change) for change in events.CHANGES} == set(get_args(InventoryChange))


def test_every_drift_is_shown() -> None:
    assert {type(drift) for drift in events.DRIFTS} == set(get_args(Drift))


@pytest.mark.parametrize("reports", [NodeReport, ClaimReport])
def test_every_report_of_the_plugin_that_writes_an_event_is_shown(reports: type) -> None:
    writing = [
        name
        for name, method in vars(reports).items()
        if not name.startswith("_")
        and re.search(r"self\._(report|warn)\(", inspect.getsource(method))
    ]
    assert writing
    source = inspect.getsource(events)
    assert [name for name in writing if f".{name}(" not in source] == []


def test_every_kind_of_device_is_shown() -> None:
    assert {type(device) for device in devices.DEVICES} == set(get_args(GpuDevice))


def test_every_name_of_the_controller_is_shown() -> None:
    values = {
        name for name, value in vars(names).items() if name.isupper() and isinstance(value, str)
    }
    assert values - constants(names).keys() == {"QUEUE_LABEL"}, "a name without a docstring"
    page = names_page.page()
    shown = {name for name in values if f"`{getattr(names, name)}`" in page}
    assert values - shown == names_page.NO_NAMES


def test_the_names_of_the_manifests_are_in_the_chart() -> None:
    chart = "".join(file.read_text() for file in (_ROOT / "deploy" / "chart").rglob("*.yaml"))
    assert [name for _, name, _ in names_page.MANIFESTS if name not in chart] == []


def test_every_command_but_completion_says_what_its_exit_codes_mean() -> None:
    silent = set()
    for name, listed in installed().items():
        parser = ArgumentParser()
        listed.load().add_arguments(parser)
        if 0 not in commands.exit_codes(parser):
            silent.add(name)
    assert silent == {"completion"}


def test_a_meaning_of_an_exit_code_may_have_several_lines() -> None:
    parser = ArgumentParser(epilog="exit codes:\n  0  good\n  2  bad, or\n     worse\n")
    assert commands.exit_codes(parser) == {0: "good", 2: "bad, or worse"}


def test_a_metric_is_shown_with_its_labels() -> None:
    counter = Counter("things", "Things.", ("kind", "size"), registry=CollectorRegistry())
    assert metrics.rows(counter) == [("`things_total`", "counter", "`kind`, `size`", "Things.")]
