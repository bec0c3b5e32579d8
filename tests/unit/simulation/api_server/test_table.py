from datetime import timedelta

import pytest

from carina_dra.kube.api_resource import RESOURCE_SLICES
from simulation.api_server.resources import SERVED
from simulation.api_server.table import duration, table


@pytest.mark.parametrize(
    ("age", "text"),
    [
        (timedelta(seconds=7), "7s"),
        (timedelta(seconds=119), "119s"),
        (timedelta(minutes=2), "2m"),
        (timedelta(minutes=5, seconds=3), "5m3s"),
        (timedelta(minutes=90), "90m"),
        (timedelta(hours=30), "30h"),
        (timedelta(days=9), "9d"),
    ],
)
def test_ages_are_short(age: timedelta, text: str) -> None:
    assert duration(age) == text


def test_a_row_has_what_its_columns_say() -> None:
    slices = next(served for served in SERVED if served.resource == RESOURCE_SLICES)
    body = {
        "metadata": {"name": "s", "creationTimestamp": "2026-11-20T12:00:00Z"},
        "spec": {"nodeName": "n1", "driver": "d", "pool": {"name": "n1"}, "devices": [{}, {}]},
    }
    shown = table(slices, [body], {})
    names = [column["name"] for column in shown["columnDefinitions"]]
    assert names == ["Name", "Node", "Driver", "Pool", "Devices", "Age"]
    assert shown["rows"][0]["cells"][:5] == ["s", "n1", "d", "n1", "2"]
