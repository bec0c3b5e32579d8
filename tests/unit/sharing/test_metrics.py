"""What carina-sharing says of itself, as Prometheus reads it."""

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from sharing.metrics import SharingMetrics
from sharing.sampling import SamplingCounts


def page(counts: SamplingCounts) -> list[str]:
    registry = CollectorRegistry()
    registry.register(SharingMetrics(lambda: counts))
    lines = generate_latest(registry).decode().splitlines()
    return [line for line in lines if not line.startswith("#")]


@pytest.mark.parametrize(("hangs", "value"), [(False, "0.0"), (True, "1.0")])
def test_it_says_what_it_has_sampled_and_ended_and_whether_the_driver_hangs(
    hangs: bool, value: str
) -> None:
    assert page(SamplingCounts(samples=7, ended={"memory": 2, "mps": 0}, hangs=hangs)) == [
        "carina_sharing_samples_total 7.0",
        'carina_sharing_processes_ended_total{why="memory"} 2.0',
        'carina_sharing_processes_ended_total{why="mps"} 0.0',
        f"carina_sharing_driver_hangs {value}",
    ]
