"""Two plugins on one node, as during a rolling update, both called, repairing and killed at random.

Each user asks either plugin for every call, both at once for some, and asks again when one has died
under it. What was answered must hold at that moment, whichever plugin answered; a container runtime
must never find half a CDI spec; and in the end nothing may be left.
"""

import json
import random
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc

from carina_dra.kube.api_resource import RESOURCE_SLICES
from kubelet_plugin.claims.checkpoint import parse_checkpoint
from kubelet_plugin.claims.claim import NodeClaim
from kubelet_plugin.kubelet.pb import dra_v1_pb2 as pb
from tests.eventually import eventually
from tests.integration.plugin_host import DRIVER, Host, running_host
from tests.length import seed

PLUGINS = ("old", "new")
KILLS, CLAIMS, USERS, GPUS = 8, 48, 4, 8
_SERVICE = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
_RECONNECT_AT_ONCE = [
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 50),
]
_DEADLINE = 120.0


class User:
    """Uses claims, one after another, on GPUs of its own."""

    def __init__(self, host: Host, number: int) -> None:
        self._host = host
        self.devices = [f"gpu-{minor}" for minor in range(number, GPUS, USERS)]
        self._random = random.Random(f"{seed()}:{number}")
        self._deadline = time.monotonic() + _DEADLINE

    def use(self, claim: pb.Claim, device: str) -> None:
        """Has a claim prepared by either or both plugins, and unprepared by either or both."""
        answers = self._ask("NodePrepareResources", claim)
        answers += self._ask("NodePrepareResources", claim)
        granted = [self._entry(answer, claim).devices for answer in answers]
        assert all(devices == granted[0] for devices in granted)
        (prepared,) = granted[0]
        assert prepared.device_name == device
        spec = json.loads(self._spec(claim).read_bytes())
        assert [f"{spec['kind']}={spec['devices'][0]['name']}"] == prepared.cdi_device_ids
        assert self._holders(device) == [claim.uid]

        self._ask("NodeUnprepareResources", claim)
        assert not self._spec(claim).exists()
        assert self._holders(device) == []

    def _ask(self, method: str, claim: pb.Claim) -> list[bytes]:
        """Gives the answers of one plugin, or of both if it asked them at the same time."""
        asked = self._random.choice([PLUGINS, ("old",), ("new",)])
        with ThreadPoolExecutor(len(asked)) as pool:
            return list(pool.map(lambda plugin: self._insist(plugin, method, claim), asked))

    def _insist(self, plugin: str, method: str, claim: pb.Claim) -> bytes:
        """Calls the plugin until it answers: it may be killed and started again."""
        # Requests and answers of both methods are encoded alike.
        request = pb.NodePrepareResourcesRequest(claims=[claim]).SerializeToString()
        while True:
            path = self._host.plugin / f"dra-{plugin}.sock"
            with grpc.insecure_channel(f"unix:{path}", _RECONNECT_AT_ONCE) as channel:
                call: Any = channel.unary_unary(f"{_SERVICE}/{method}")
                try:
                    answer: bytes = call(request, timeout=45, wait_for_ready=True)
                except grpc.RpcError:
                    assert time.monotonic() < self._deadline, "the plugin does not come back"
                else:
                    assert self._entry(answer, claim).error == ""
                    return answer

    def _entry(self, answer: bytes, claim: pb.Claim) -> pb.NodePrepareResourceResponse:
        return pb.NodePrepareResourcesResponse.FromString(answer).claims[claim.uid]

    def _spec(self, claim: pb.Claim) -> Path:
        return self._host.folder / f"cdi/{DRIVER}-claim_{claim.uid}.json"

    def _holders(self, device: str) -> list[str]:
        return [
            claim.uid
            for claim in recorded(self._host).values()
            if claim.devices[0].device == device
        ]


def recorded(host: Host) -> dict[str, NodeClaim]:
    return dict(parse_checkpoint((host.plugin / "checkpoint.jsonl").read_bytes()).claims)


def read_specs_as_a_runtime(host: Host, until: threading.Event) -> int:
    """Reads all CDI specs over and over; gives how many it has read, each of them whole."""
    read = 0
    while not until.is_set():
        for path in (host.folder / "cdi").glob("*.json"):
            with suppress(FileNotFoundError):
                assert json.loads(path.read_bytes())["devices"]
                read += 1
    return read


def test_older_plugin_leaves_the_slices_of_a_newer_one_that_differs() -> None:
    with running_host() as host:
        host.start("--pod-uid", "old", "--device-kinds", "gpu")
        eventually(host.has_whole_pool)

        host.start("--pod-uid", "new", "--device-kinds", "gpu,share")

        eventually(lambda: "a newer plugin of the driver writes the slices" in host.log.read_text())
        eventually(lambda: len(_device_names(host)) == 2 * GPUS)
        # Each has written its slices, and the older one once more before the newer one listened.
        assert _generation(host) <= 4


def test_older_plugin_writes_the_slices_again_once_they_are_gone() -> None:
    with running_host() as host:
        host.start("--pod-uid", "old", "--device-kinds", "gpu")
        eventually(host.has_whole_pool)
        host.start("--pod-uid", "new", "--device-kinds", "gpu")
        host.processes[1].send_signal(signal.SIGSTOP)  # it listens still
        for body in host.slices():
            host.client.delete(RESOURCE_SLICES, body["metadata"]["name"])

        eventually(lambda: len(_device_names(host)) == GPUS)


def _device_names(host: Host) -> set[str]:
    return {device["name"] for body in host.slices() for device in body["spec"].get("devices", ())}


def _generation(host: Host) -> int:
    return max(int(body["spec"]["pool"]["generation"]) for body in host.slices())


def test_two_plugins_that_are_killed_lose_double_and_leak_nothing() -> None:
    chance = random.Random(seed())
    with running_host() as host:
        claims = [
            (
                host.allocated_claim(f"claim-{number}", f"gpu-{number % GPUS}")["metadata"],
                f"gpu-{number % GPUS}",
            )
            for number in range(CLAIMS)
        ]
        flags = {name: ("--pod-uid", name, "--repair-seconds", "0.05") for name in PLUGINS}
        processes = {name: host.start(*flags[name]) for name in PLUGINS}
        killed, used_up = threading.Event(), threading.Event()

        def work(number: int) -> int:
            user = User(host, number)
            own = [claim for claim in claims if claim[1] in user.devices]
            used = 0
            while used < len(own) or not killed.is_set():
                metadata, device = own[used % len(own)]
                user.use(
                    pb.Claim(namespace="default", name=metadata["name"], uid=metadata["uid"]),
                    device,
                )
                used += 1
            return used

        with ThreadPoolExecutor(USERS + 1) as pool:
            runtime = pool.submit(read_specs_as_a_runtime, host, used_up)
            users = [pool.submit(work, number) for number in range(USERS)]
            try:
                for _ in range(KILLS):
                    time.sleep(chance.uniform(0, 0.5))  # the moment of death is the test's input
                    name = chance.choice(PLUGINS)
                    processes[name].kill()
                    processes[name].wait()
                    processes[name] = host.start(*flags[name])
            finally:
                killed.set()
                try:
                    used = sum(user.result() for user in users)
                finally:
                    used_up.set()
            assert runtime.result() > 0

        assert used >= CLAIMS
        assert recorded(host) == {}
        assert list((host.folder / "cdi").iterdir()) == []
        assert len(host.sockets()) == 2 * len(PLUGINS)
