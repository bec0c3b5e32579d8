"""Killed 200 times at random under a churn of 500 claims, the plugin loses and leaks nothing.

Four users prepare and unprepare claims through the real socket, each on GPUs of its own, and ask
again when the plugin has died under them, as the kubelet does. What was answered must hold at that
moment, and in the end nothing may be left.
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

from kubelet_plugin.claims.checkpoint import parse_checkpoint
from kubelet_plugin.claims.claim import NodeClaim
from kubelet_plugin.kubelet.pb import dra_v1_pb2 as pb
from tests.eventually import eventually
from tests.integration.plugin_host import DRIVER, Host, running_host

KILLS, CLAIMS, USERS, GPUS = 200, 500, 4, 8
SEED = 20261120
_SERVICE = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"
_DEADLINE = 540.0
"""Seconds. Two hundred starts alone take minutes on a busy machine with two cores."""


class User:
    """Uses claims, one after another on each of its GPUs."""

    def __init__(self, host: Host, number: int) -> None:
        self._host = host
        self.devices = [f"gpu-{minor}" for minor in range(number, GPUS, USERS)]
        self._deadline = time.monotonic() + _DEADLINE

    def use(self, claim: pb.Claim, device: str) -> None:
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
        held = [each.uid for each in self._recorded() if each.devices[0].device == device]
        assert held == [claim.uid]
        self._insist("NodeUnprepareResources", claim, pb.NodeUnprepareResourcesRequest)
        assert not self._spec(claim).exists()

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
            with grpc.insecure_channel(f"unix:{self._host.plugin}/dra.sock") as channel:
                call: Any = channel.unary_unary(f"{_SERVICE}/{method}")
                try:
                    answer: bytes = call(request(claims=[claim]).SerializeToString(), timeout=45)
                except grpc.RpcError:
                    assert time.monotonic() < self._deadline, "the plugin does not come back"
                    # As a kubelet, ask again once the plugin is back.
                    eventually(self._listens, within=self._deadline - time.monotonic())
                else:
                    return answer

    def _listens(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(str(self._host.plugin / "dra.sock")) == 0


@pytest.mark.timeout(600)
def test_nothing_is_lost_doubled_or_leaked() -> None:
    chance = random.Random(SEED)
    print(f"seed {SEED}")
    with running_host() as host:
        claims = [
            (
                host.allocated_claim(f"claim-{number}", f"gpu-{number % GPUS}"),
                f"gpu-{number % GPUS}",
            )
            for number in range(CLAIMS)
        ]
        process = host.start()
        killed = threading.Event()

        def work(number: int) -> int:
            user = User(host, number)
            own = [claim for claim in claims if claim[1] in user.devices]
            used = 0
            while used < len(own) or not killed.is_set():
                body, device = own[used % len(own)]
                metadata = body["metadata"]
                user.use(
                    pb.Claim(namespace="default", name=metadata["name"], uid=metadata["uid"]),
                    device,
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
        locks = {"serialize.lock", *(f"gpu-{minor}.lock" for minor in range(GPUS))}
        left = {path.name for path in host.plugin.iterdir()}
        assert left == {"checkpoint.jsonl", "dra.sock", *locks}
