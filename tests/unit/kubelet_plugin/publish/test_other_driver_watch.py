"""Observation of other drivers on the node."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from carina_dra.kube.api_resource import NODES
from carina_dra.kube.errors import ApiError, ApiOperation, ServerError
from kubelet_plugin.publish import other_driver_watch
from kubelet_plugin.publish.other_driver_watch import OtherDriverWatch, same_name_plugin
from kubelet_plugin.publish.other_drivers import (
    ExtendedResource,
    PodDevice,
    PublishedGpu,
    SameNamePlugin,
)

UNAVAILABLE = ServerError(ApiOperation.on("get", NODES, None, "node-1"), "out of order")
GPU_RESOURCE = ExtendedResource("nvidia.com/gpu")
PUBLISHED = PublishedGpu("gpu.nvidia.com", "gpu-1")
SAME_NAME = SameNamePlugin("dra.sock", "checkpoint.json")


@dataclass
class World:
    """A Node, a plugin directory and a clock that a test sets."""

    resources: dict[str, str] = field(default_factory=dict)
    failure: ApiError | None = None
    plugin: SameNamePlugin | None = None
    pod_devices: list[PodDevice] | OSError = field(default_factory=list)
    now: float = 1000.0
    reads: int = 0

    def read_node(self) -> dict[str, Any]:
        self.reads += 1
        if self.failure:
            raise self.failure
        return {"status": {"allocatable": self.resources}}

    def read_pod_devices(self) -> list[PodDevice]:
        if isinstance(self.pod_devices, OSError):
            raise self.pod_devices
        return self.pod_devices

    def watch(self) -> OtherDriverWatch:
        return OtherDriverWatch(
            read_node=self.read_node,
            same_name_plugin=lambda: self.plugin,
            pod_devices=self.read_pod_devices,
            clock=lambda: self.now,
            interval=60,
            memory=300,
        )


@pytest.fixture
def world() -> World:
    return World()


def test_all_three_kinds_of_offers_are_found(world: World) -> None:
    world.resources, world.plugin = {"nvidia.com/gpu": "8"}, SAME_NAME

    assert set(world.watch().offers([PUBLISHED])) == {GPU_RESOURCE, PUBLISHED, SAME_NAME}


def test_gpus_of_pods_count_until_their_pods_have_ended(world: World) -> None:
    held = PodDevice("nvidia.com/gpu", "GPU-1", "default/pod")
    world.pod_devices = [held, PodDevice("rdma/hca", "mlx5_0", "default/pod")]
    watch = world.watch()

    assert watch.offers([]) == (held,)
    world.now = watch.due
    world.pod_devices = []
    assert watch.offers([]) == ()


def test_gpus_of_pods_stay_known_while_the_kubelet_does_not_answer(world: World) -> None:
    held = PodDevice("nvidia.com/gpu", "GPU-1", "default/pod")
    world.pod_devices = [held]
    watch = world.watch()
    watch.offers([])

    world.now = watch.due
    world.pod_devices = OSError("no answer")
    assert watch.offers([]) == (held,)


def test_the_node_is_read_once_per_interval(world: World) -> None:
    watch = world.watch()
    watch.offers([])
    assert world.now + 54 <= watch.due <= world.now + 66

    world.now = watch.due - 1
    watch.offers([])
    assert world.reads == 1

    world.now = watch.due
    world.resources = {"nvidia.com/gpu": "8"}
    assert watch.offers([]) == (GPU_RESOURCE,)
    assert world.reads == 2


def test_nodes_do_not_read_in_step(world: World) -> None:
    watches = [world.watch() for _ in range(20)]
    for watch in watches:
        watch.offers([])
    assert len({watch.due for watch in watches}) > 1


def test_an_offer_that_disappears_briefly_still_counts(world: World) -> None:
    watch = world.watch()
    watch.offers([PUBLISHED])
    world.now += 299
    assert watch.offers([]) == (PUBLISHED,)

    world.now += 1
    assert watch.offers([]) == ()


def test_a_failure_of_the_first_reading_is_raised(world: World) -> None:
    world.failure = UNAVAILABLE
    watch = world.watch()
    with pytest.raises(ServerError):
        watch.offers([])

    world.failure = None
    assert watch.offers([]) == ()


def test_the_last_reading_holds_while_the_node_cannot_be_read(world: World) -> None:
    world.resources = {"nvidia.com/gpu": "8"}
    watch = world.watch()
    watch.offers([])
    world.failure = UNAVAILABLE
    for _ in range(10):
        world.now = watch.due
        assert watch.offers([]) == (GPU_RESOURCE,)


@pytest.fixture
def listen(tmp_path: Path) -> Iterator["Listen"]:
    with ExitStack() as cleanup:
        yield Listen(tmp_path, cleanup)


@dataclass
class Listen:
    """Makes sockets in the plugin directory."""

    directory: Path
    cleanup: ExitStack

    def on(self, name: str, *, backlog: int = 8) -> None:
        listening = self.cleanup.enter_context(socket.socket(socket.AF_UNIX))
        listening.bind(str(self.directory / name))
        listening.listen(backlog)

    def abandon(self, name: str) -> None:
        with socket.socket(socket.AF_UNIX) as abandoned:
            abandoned.bind(str(self.directory / name))

    def find(self) -> SameNamePlugin | None:
        return same_name_plugin(self.directory, self.directory / "dra-own.sock")


def test_a_listening_plugin_with_another_checkpoint_is_found(listen: Listen) -> None:
    listen.on("dra-own.sock")
    listen.on("dra.sock")
    (listen.directory / "checkpoint.json").touch()

    assert listen.find() == SameNamePlugin(
        str(listen.directory / "dra.sock"), str(listen.directory / "checkpoint.json")
    )


def test_a_plugin_that_is_too_busy_to_accept_is_found(
    listen: Listen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(other_driver_watch, "_CONNECT_TIMEOUT", 0.01)
    (listen.directory / "checkpoint.json").touch()
    listen.on("dra.sock", backlog=0)
    with socket.socket(socket.AF_UNIX) as waiting:
        waiting.connect(str(listen.directory / "dra.sock"))
        assert listen.find() is not None


def test_a_carina_plugin_in_a_rolling_update_is_not_found(listen: Listen) -> None:
    for name in ("dra-own.sock", "dra-old.sock"):
        listen.on(name)
    for name in ("checkpoint.jsonl", "checkpoint.jsonl.tmp", "serialize.lock"):
        (listen.directory / name).touch()
    (listen.directory / "checkpoint.jsonl.unreadable-17").touch()

    assert listen.find() is None


@pytest.mark.parametrize("ours", ["checkpoint.jsonl", "serialize.lock"])
def test_a_carina_plugin_is_not_taken_for_one_whose_place_it_has_taken(
    listen: Listen, ours: str
) -> None:
    for name in ("dra-own.sock", "dra-old.sock"):
        listen.on(name)
    for name in (ours, "checkpoint.json"):
        (listen.directory / name).touch()
    assert listen.find() is None

    listen.on("dra.sock")
    assert listen.find() is not None


def test_files_of_a_removed_plugin_are_ignored(listen: Listen) -> None:
    listen.on("dra-own.sock")
    listen.abandon("dra.sock")
    (listen.directory / "checkpoint.json").touch()

    assert listen.find() is None


def test_a_missing_plugin_directory_is_ignored(tmp_path: Path) -> None:
    assert same_name_plugin(tmp_path / "missing", tmp_path / "missing/dra.sock") is None
