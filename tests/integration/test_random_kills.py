"""Killed at random times under a churn of claims, the plugin loses and leaks nothing.

Four users prepare and unprepare claims through the real socket, each on GPUs of its own, and ask
again when the plugin has died under them, as the kubelet does. One claim after the other has the
same GPU whole, a partition of it, or a share. What was answered must hold at that moment, and in
the end nothing may be left.

A call may fail while the plugin is being killed, and must succeed afterwards. The only limit that a
busy machine could reach is that of a single start.
"""

import json
import random
import socket
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from carina_dra.kube.body import Body
from kubelet_plugin.claims.checkpoint import parse_checkpoint
from kubelet_plugin.claims.claim import NodeClaim
from kubelet_plugin.kubelet.pb import dra_v1_pb2 as pb
from tests.eventually import eventually
from tests.integration.plugin_host import DRIVER, START_PATIENCE, Host, running_host
from tests.length import scaled, seed

KILLS, CLAIMS, USERS, GPUS = scaled(200), scaled(500), 4, 8
PLACEMENT = 3
SHARE_ID = "00000000-0000-4000-8000-000000000000"
AMOUNTS = {"memory": "8Gi", "cores": "40"}
_SERVICE = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
_CALL = 45.0
"""Seconds after which the kubelet gives a call up."""
_OWN_CONNECTION = (("grpc.use_local_subchannel_pool", 1),)
"""Otherwise the users would share connections, and the back-off after a failure."""
_KILLING = KILLS * START_PATIENCE
"""Seconds that all starts take at most, if none of them fails."""


class User:
    """Uses claims, one after another on each of its GPUs."""

    def __init__(self, host: Host, number: int, killed: threading.Event) -> None:
        """`killed` is set once the plugin runs that is not killed any more."""
        self._host = host
        self._killed = killed
        self.gpus = range(number, GPUS, USERS)

    def use(self, claim: pb.Claim, device: str, gpu: int) -> None:
        """Has a claim prepared, looks at what that gave, and has it unprepared."""
        answer = pb.NodePrepareResourcesResponse.FromString(
            self._insist("NodePrepareResources", claim, pb.NodePrepareResourcesRequest)
        )
        entry = answer.claims[claim.uid]
        assert entry.error == ""
        (granted,) = entry.devices
        assert granted.device_name == device
        spec = json.loads(self._spec(claim).read_bytes())
        assert f"{spec['kind']}={spec['devices'][0]['name']}" == granted.cdi_device_ids[0]
        held = [each.uid for each in self._recorded() if each.devices[0].device in devices_of(gpu)]
        assert held == [claim.uid]
        state = self._host.gpus.state.gpus[gpu]
        made = [(each.start, len(each.compute_instances)) for each in state.instances]
        assert made == ([(PLACEMENT, 1)] if "-mig-" in device else [])
        assert state.mig_enabled == ("-mig-" in device)
        undone = pb.NodeUnprepareResourcesResponse.FromString(
            self._insist("NodeUnprepareResources", claim, pb.NodeUnprepareResourcesRequest)
        )
        assert undone.claims[claim.uid].error == ""
        assert not self._spec(claim).exists()
        assert not self._host.gpus.state.gpus[gpu].instances

    def _spec(self, claim: pb.Claim) -> Path:
        return self._host.folder / f"cdi/{DRIVER}-claim_{claim.uid}.json"

    def _recorded(self) -> Iterable[NodeClaim]:
        return parse_checkpoint(
            (self._host.plugin / "checkpoint.jsonl").read_bytes()
        ).claims.values()

    def _insist(
        self,
        method: str,
        claim: pb.Claim,
        request: type[pb.NodePrepareResourcesRequest | pb.NodeUnprepareResourcesRequest],
    ) -> bytes:
        """Calls until there is an answer; the message as bytes, whichever it is."""
        while True:
            undisturbed = self._killed.is_set()
            target = f"unix:{self._host.plugin}/dra.sock"
            with grpc.insecure_channel(target, options=_OWN_CONNECTION) as channel:
                call: Any = channel.unary_unary(f"{_SERVICE}/{method}")
                try:
                    answer: bytes = call(request(claims=[claim]).SerializeToString(), timeout=_CALL)
                except grpc.RpcError:
                    if undisturbed:
                        raise
                    # As a kubelet, ask again once the plugin is back.
                    eventually(self._may_respond, within=_KILLING)
                else:
                    return answer

    def _may_respond(self) -> bool:
        if self._killed.is_set():
            return True
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(self._host.plugin / "dra.sock")) == 0


def devices_of(gpu: int) -> tuple[str, ...]:
    """Returns one device of each kind, which exclude each other."""
    return f"gpu-{gpu}", f"gpu-{gpu}-mig-1g10gb-19-{PLACEMENT}", f"gpu-{gpu}-share"


def _claim(host: Host, number: int) -> tuple[Body, str, int]:
    """Makes a claim; returns it with its device and GPU. Each GPU has all kinds in turn."""
    gpu = number % GPUS
    of_gpu = devices_of(gpu)
    device = of_gpu[number // GPUS % len(of_gpu)]
    share: dict[str, object] = {"shareID": SHARE_ID, "consumedCapacity": AMOUNTS}
    more = share if device.endswith("-share") else {}
    return host.allocated_claim(f"claim-{number}", device, **more), device, gpu


@pytest.mark.timeout(_KILLING + CLAIMS)  # a claim that nothing disturbs takes a few milliseconds
def test_nothing_is_lost_doubled_or_leaked() -> None:
    chance = random.Random(seed())
    with running_host() as host:
        claims = [_claim(host, number) for number in range(CLAIMS)]
        process = host.start()
        killed = threading.Event()

        def work(number: int) -> int:
            user = User(host, number, killed)
            own = [claim for claim in claims if claim[2] in user.gpus]
            used = 0
            while used < len(own) or not killed.is_set():
                body, device, gpu = own[used % len(own)]
                metadata = body["metadata"]
                user.use(
                    pb.Claim(namespace="default", name=metadata["name"], uid=metadata["uid"]),
                    device,
                    gpu,
                )
                used += 1
            return used

        with ThreadPoolExecutor(USERS) as pool:
            users = [pool.submit(work, number) for number in range(USERS)]
            try:
                for _ in range(KILLS):
                    time.sleep(chance.uniform(0, 0.15))  # the moment of death is the test's input
                    process.kill()
                    process.wait()
                    process = host.start()
            finally:
                killed.set()
            used = sum(user.result() for user in users)

        assert used >= CLAIMS
        assert parse_checkpoint((host.plugin / "checkpoint.jsonl").read_bytes()).claims == {}
        assert list((host.folder / "cdi").iterdir()) == []
        assert not any(gpu.instances for gpu in host.gpus.state.gpus.values())
        records = [json.loads(path.read_bytes()) for path in (host.plugin / "mig").iterdir()]
        assert not any(record["instances"] for record in records)
        locks = {"serialize.lock", *(f"gpu-{minor}.lock" for minor in range(GPUS))}
        left = {path.name for path in host.plugin.iterdir()}
        known = {"gpus.json", "health.json"}
        assert left - known == {"checkpoint.jsonl", "dra.sock", "mig", *locks}
