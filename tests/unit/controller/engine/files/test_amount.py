"""Durations and amounts as people write them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carina_dra.placement.cluster.gpu import GPU
from carina_dra.resource.errors import BadValueError
from controller.engine.files.amount import read_amount, read_duration, write_duration
from controller.engine.model.resource import (
    CapacityOf,
    Cpu,
    DevicesOf,
    Gpus,
    Memory,
    Pods,
    Resource,
    write_amount,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1h30m", 5400),
        ("45s", 45),
        ("500ms", 0.5),
        ("0.5h", 1800),
        ("36h", 129600),
        ("0s", 0),
        (90, 90),
        (1.5, 1.5),
    ],
)
def test_a_duration_is_read(text: Any, seconds: float) -> None:
    assert read_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "1", "1d", "-1s", "1h 30m", "h", -1, True, None, "1e3s"])
def test_what_is_no_duration_is_refused(text: Any) -> None:
    with pytest.raises(BadValueError, match="not a duration such as 1h30m"):
        read_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"), [(5400, "1h30m"), (0, "0s"), (0.25, "0.25s"), (86400, "24h"), (61, "1m1s")]
)
def test_a_duration_is_written_in_its_largest_units(seconds: float, text: str) -> None:
    assert write_duration(seconds) == text


@given(st.integers(0, 10**12).map(lambda milliseconds: milliseconds / 1000))
def test_a_duration_survives(seconds: float) -> None:
    assert read_duration(write_duration(seconds)) == seconds


@pytest.mark.parametrize(
    ("resource", "written", "amount"),
    [
        (Cpu(), "8", 8000),
        (Cpu(), "500m", 500),
        (Memory(), "640Gi", 640 * 2**30),
        (CapacityOf("gpu.carina.dev/memory"), "80Gi", 80 * 2**30),
        (DevicesOf("gpu"), 8, 8),
        (Pods(), 1000, 1000),
        (Gpus(), 8, 8 * GPU),
        (Gpus("H100"), 0, 0),
    ],
)
def test_an_amount_is_read_and_written_in_its_unit(
    resource: Resource, written: Any, amount: int
) -> None:
    assert read_amount(resource, written) == amount
    assert write_amount(resource, amount) == written


@pytest.mark.parametrize(
    ("resource", "written", "amount"),
    [
        (Cpu(), "0.0001", 1),
        (Memory(), "0.1Gi", 107374183),
        (CapacityOf("gpu.carina.dev/memory"), "1500m", 2),
    ],
)
def test_what_is_finer_than_the_unit_is_rounded_up_as_kubernetes_does(
    resource: Resource, written: str, amount: int
) -> None:
    assert read_amount(resource, written) == amount


@pytest.mark.parametrize("resource", [DevicesOf("gpu"), Pods()])
def test_half_a_device_and_half_a_pod_are_refused(resource: Resource) -> None:
    with pytest.raises(BadValueError, match=r"is 1\.5; write a whole number"):
        read_amount(resource, 1.5)


@pytest.mark.parametrize("written", [0.5, "0.5", "0.500"])
def test_half_a_gpu_is_exact(written: Any) -> None:
    assert read_amount(Gpus(), written) * 2 == GPU


@given(st.integers(0, 10**9))
def test_thousandths_of_gpus_survive(thousandths: int) -> None:
    amount = GPU // 1000 * thousandths
    assert read_amount(Gpus(), write_amount(Gpus(), amount)) == amount


@pytest.mark.parametrize("written", ["500m", "8Gi", "1k", "0.0001", 0.0001, "1e3", "1.", ".5"])
def test_gpus_are_written_as_plain_numbers(written: Any) -> None:
    with pytest.raises(BadValueError, match=r"write a number such as 8 or 0\.5"):
        read_amount(Gpus(), written)
