"""How resources are named, and their amounts shown."""

import pytest

from carina_dra.placement.cluster.gpu import GPU
from controller.engine.model.resource import (
    CapacityOf,
    Cpu,
    DevicesOf,
    Gpus,
    Memory,
    Pods,
    Resource,
    describe,
    figure,
    gpus_text,
    parse_resource,
)


@pytest.mark.parametrize(
    ("resource", "name"),
    [
        (Gpus(), "gpus"),
        (Gpus("NVIDIA H100 80GB HBM3"), "gpus NVIDIA H100 80GB HBM3"),
        (DevicesOf("gpus"), "deviceClass gpus"),
        (CapacityOf("gpu.carina.dev/memory"), "capacity gpu.carina.dev/memory"),
        (Cpu(), "cpu"),
        (Memory(), "memory"),
        (Pods(), "pods"),
    ],
)
def test_a_resource_is_read_by_its_name(resource: Resource, name: str) -> None:
    assert describe(resource) == name
    assert parse_resource(name) == resource


@pytest.mark.parametrize("name", ["", "gpu", "gpus ", "deviceClass ", "capacity "])
def test_what_names_no_resource_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="write gpus, `gpus MODEL`, `deviceClass NAME`"):
        parse_resource(name)


@pytest.mark.parametrize(
    ("resource", "amount", "shown"),
    [
        (Gpus(), GPU // 2, 0.5),
        (Gpus("H100"), 8 * GPU, 8),
        (DevicesOf("a"), 8, 8),
        (Cpu(), 500, 500),
    ],
)
def test_a_metric_has_gpus_in_whole_ones(resource: Resource, amount: int, shown: float) -> None:
    assert figure(resource, amount) == shown


@pytest.mark.parametrize(
    ("parts_of_28", "shown"),
    [(56, "2"), (14, "0.5"), (4, "1/7"), (1, "1/28"), (60, "2.143"), (20_245, "723.036")],
)
def test_less_than_a_gpu_is_shown_exactly_and_more_in_decimals(
    parts_of_28: int, shown: str
) -> None:
    assert gpus_text(parts_of_28 * GPU // 28) == shown
