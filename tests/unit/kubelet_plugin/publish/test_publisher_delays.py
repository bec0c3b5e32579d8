"""How long a publisher waits after failures and after repairs."""

from dataclasses import dataclass
from typing import cast

import pytest

from carina_dra.kube.backoff import Backoff
from carina_dra.kube.client import Client
from kubelet_plugin.devices.order import DeviceOrder
from kubelet_plugin.devices.publish_settings import PublishSettings
from kubelet_plugin.publish.ordering import Ordering
from kubelet_plugin.publish.other_driver_watch import OtherDriverWatch
from kubelet_plugin.publish.publisher import Publisher, _Wanted
from tests.integration.published_slices import Report


@dataclass
class Clock:
    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def publisher(clock: Clock) -> Publisher:
    """A publisher that was not started."""
    return Publisher(
        cast("Client", None),
        settings=PublishSettings("gpu.carina.dev"),
        node="node-1",
        reporter=Report(),
        clock=clock,
        other_drivers=OtherDriverWatch(
            read_node=dict, same_name_plugin=lambda: None, pod_devices=tuple, clock=clock
        ),
        beside_other_drivers="withhold",
        ordering=Ordering(DeviceOrder.NONE, seconds=10),
        backoff=Backoff(initial=1.0, cap=30.0, jitter=0.0),
    )


def delay_of_next_attempt(publisher: Publisher, clock: Clock) -> float:
    due, publisher._due = publisher._due, float("inf")
    return due - clock.now


def test_delays_grow_with_each_failure_and_start_again_after_a_success(
    publisher: Publisher, clock: Clock
) -> None:
    delays = []
    for _ in range(4):
        publisher._retry()
        delays.append(delay_of_next_attempt(publisher, clock))
    publisher._finish(_Wanted((), released=False))
    publisher._retry()
    delays.append(delay_of_next_attempt(publisher, clock))
    assert delays == [1.0, 2.0, 4.0, 8.0, 1.0]


def test_a_retry_waits_as_long_as_the_api_server_asks(publisher: Publisher, clock: Clock) -> None:
    publisher._retry(17.0)
    assert delay_of_next_attempt(publisher, clock) == 17.0


def test_repairs_are_delayed_more_each_time_until_there_was_none_for_a_while(
    publisher: Publisher, clock: Clock
) -> None:
    def delay() -> float:
        publisher._repair()
        return publisher._no_repair_before - clock.now

    delays = [delay() for _ in range(5)]
    assert delays[4] > 1.5  # 16 s, half more or less
    clock.now += 301
    assert delay() <= 1.5
