"""The health streams, by a client on a socket as the kubelet is one."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from kubelet_plugin.claim_status.live_claims import LiveClaims
from kubelet_plugin.claims.claim import NodeClaim
from kubelet_plugin.inventory.health import GpuProblem
from kubelet_plugin.inventory.inventory import DriverReady
from kubelet_plugin.kubelet.health_service import HEALTH_VERSIONS, TIMEOUT, HealthService
from kubelet_plugin.kubelet.pb import dra_health_v1_pb2 as pb
from kubelet_plugin.kubelet.server import UnixServer
from tests.eventually import eventually
from tests.samples.claims import allocated, claim
from tests.samples.gpus import LOST, UNREADABLE, observed

AT = 1_700_000_000
Reports = Iterator[pb.NodeWatchResourcesResponse]
Watch = Callable[..., Any]
"""Opens a stream, of v1 or of the version that is named."""


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def live() -> LiveClaims:
    return LiveClaims()


@pytest.fixture
def server(live: LiveClaims, clock: Clock) -> Iterator[UnixServer]:
    service = HealthService(live, clock=clock, now=lambda: AT + 0.5)
    with tempfile.TemporaryDirectory(prefix="carina") as folder:
        server = UnixServer([Path(folder) / "dra.sock"], service.handlers())
        server.start()
        yield server
        live.stop()
        server.stop(1)


@pytest.fixture
def watch(server: UnixServer) -> Iterator[Watch]:
    (path,) = server._paths
    with grpc.insecure_channel(f"unix:{path}") as channel:

        def open_stream(version: str = HEALTH_VERSIONS[0]) -> Any:
            method = channel.unary_stream(
                f"/{version}/NodeWatchResources",
                request_serializer=pb.NodeWatchResourcesRequest.SerializeToString,
                response_deserializer=pb.NodeWatchResourcesResponse.FromString,
            )
            return method(pb.NodeWatchResourcesRequest(), timeout=60)

        yield open_stream


def have(live: LiveClaims, *claims: NodeClaim, problems: tuple[GpuProblem, ...] = ()) -> None:
    """The claims are recorded, and GPU 0 has the problems."""
    live.gpus_seen(DriverReady((observed(0, *problems),)))
    live.recorded(claims)


def told(report: pb.NodeWatchResourcesResponse) -> dict[tuple[str, str], int]:
    return {
        (health.device.pool_name, health.device.device_name): health.health
        for health in report.devices
    }


@pytest.mark.parametrize("version", HEALTH_VERSIONS)
def test_all_devices_of_all_claims_are_told_once_each(
    live: LiveClaims, watch: Watch, version: str
) -> None:
    shares = [
        claim(allocated("gpu-0-share", share_id=uid), uid=uid) for uid in ("share-a", "share-b")
    ]
    monitor = claim(allocated("gpu-0-monitor", admin_access=True), uid="monitor")
    have(live, *shares, monitor)

    report = next(watch(version))

    assert told(report) == {
        ("node-1", "gpu-0-monitor"): pb.HEALTHY,
        ("node-1", "gpu-0-share"): pb.HEALTHY,
    }
    assert {health.health_check_timeout_seconds for health in report.devices} == {TIMEOUT}
    assert {health.last_updated_time for health in report.devices} == {AT}


def test_a_change_is_told_at_once(live: LiveClaims, watch: Watch) -> None:
    have(live, claim())
    reports = watch()
    assert told(next(reports)) == {("node-1", "gpu-0"): pb.HEALTHY}

    have(live, claim(), problems=(LOST,))

    report = next(reports)
    assert told(report) == {("node-1", "gpu-0"): pb.UNHEALTHY}
    assert "fell off the bus" in report.devices[0].message
    have(live, claim(), problems=(UNREADABLE,))
    assert told(next(reports)) == {("node-1", "gpu-0"): pb.UNKNOWN}
    have(live, claim())
    assert told(next(reports)) == {("node-1", "gpu-0"): pb.HEALTHY}


def test_a_new_claim_is_told_at_once(live: LiveClaims, watch: Watch) -> None:
    reports = watch()
    assert told(next(reports)) == {}
    live.recorded([claim()])
    assert told(next(reports)) == {("node-1", "gpu-0"): pb.UNKNOWN}


def test_health_is_repeated_every_third_of_the_timeout_of_the_kubelet(
    live: LiveClaims, watch: Watch, clock: Clock
) -> None:
    have(live, claim())
    reports = watch()
    first = next(reports)
    clock.seconds += TIMEOUT / 3
    live.wake()
    assert next(reports) == first


def test_health_is_unknown_when_the_plugin_stops(live: LiveClaims, watch: Watch) -> None:
    have(live, claim())
    reports = watch()
    next(reports)

    live.stop()

    last = next(reports)
    assert told(last) == {("node-1", "gpu-0"): pb.UNKNOWN}
    assert "stopping" in last.devices[0].message
    assert list(reports) == []


def test_a_stream_that_the_kubelet_ends_leaves_no_thread(
    live: LiveClaims, watch: Watch, server: UnixServer
) -> None:
    have(live, claim())
    for _ in range(50):
        reports = watch()
        next(reports)
        reports.cancel()
    eventually(lambda: len(server._pool._threads) < 50)
    eventually(lambda: server._pool._idle_semaphore._value == len(server._pool._threads))


def test_streams_that_nobody_reads_are_ended_by_newer_ones(
    live: LiveClaims, watch: Watch, clock: Clock
) -> None:
    """Their buffers fill, and their threads would wait for ever."""
    many = [claim(allocated(f"gpu-{n}"), uid=f"uid-{n}") for n in range(2000)]
    have(live, *many)
    stalled = [watch() for _ in range(4)]
    for reports in stalled:
        next(reports)
    for _ in range(50):
        clock.seconds += TIMEOUT
        live.wake()

    newest = [watch() for _ in range(4)]

    for reports in newest:
        assert len(told(next(reports))) == 2000
    for reports in stalled:
        with pytest.raises(grpc.RpcError) as ended:
            list(reports)
        assert ended.value.code() == grpc.StatusCode.CANCELLED
