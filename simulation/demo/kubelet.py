"""In the role of the kubelet: finds the plugin, has claims prepared, and unprepared.

As the kubelet it asks for a claim once, however many pods share it, has it unprepared after the
last of them, and gives each container the CDI devices of its own requests. It starts no container.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc

from carina_dra.kube.api_resource import PODS, RESOURCE_CLAIMS
from carina_dra.kube.body import Body
from carina_dra.kube.client import Client, MergePatch
from kubelet_plugin.kubelet.pb import dra_v1_pb2 as dra
from kubelet_plugin.kubelet.pb import plugin_registration_v1_pb2 as registration
from simulation.demo.console import DemoError, Narrator
from simulation.demo.container_runtime import ContainerView, inject
from simulation.demo.scheduler import Placement

_SERVICE = "v1.DRAPlugin"
_PATIENCE_SECONDS = 45
_RETRY_SOON = (("grpc.initial_reconnect_backoff_ms", 100),)


@dataclass(slots=True)
class _Prepared:
    claim: dra.Claim
    devices: list[dra.Device]
    pods: set[str]


@dataclass(slots=True)
class Kubelet:
    """The kubelet of a node. `prepare_seconds` and `unprepare_seconds` are what its calls took."""

    node: str
    registry: Path
    cdi_directory: Path
    client: Client
    narrator: Narrator
    clock: Callable[[], float] = time.perf_counter
    prepare_seconds: list[float] = field(default_factory=list)
    unprepare_seconds: list[float] = field(default_factory=list)
    _channel: grpc.Channel | None = field(default=None)
    _claims: dict[str, _Prepared] = field(default_factory=dict)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._channel is not None:
            self._channel.close()

    def find_plugin(self) -> Path | None:
        """The registration socket, as soon as there is one."""
        return next(iter(self.registry.glob("*-reg.sock")), None)

    def register(self, socket: Path) -> registration.PluginInfo:
        """Asks the plugin who it is, and takes it on."""
        with grpc.insecure_channel(f"unix:{socket}", _RETRY_SOON) as channel:
            info: registration.PluginInfo = _call(
                channel,
                "pluginregistration.Registration/GetInfo",
                registration.InfoRequest(),
                registration.PluginInfo,
            )
            if info.type != "DRAPlugin" or _SERVICE not in info.supported_versions:
                raise DemoError(f"{socket} is no DRA plugin that speaks {_SERVICE}: {info}")
            _call(
                channel,
                "pluginregistration.Registration/NotifyRegistrationStatus",
                registration.RegistrationStatus(plugin_registered=True),
                registration.RegistrationStatusResponse,
            )
        self._channel = grpc.insecure_channel(f"unix:{info.endpoint}")
        return info

    def start(self, placement: Placement) -> dict[str, ContainerView]:
        """Prepares what a pod needs; what each of its containers gets."""
        pod = placement.pod
        uid, namespace = pod["metadata"]["uid"], pod["metadata"]["namespace"]
        for name in placement.claims:
            claim = self.client.get(RESOURCE_CLAIMS, name, namespace=namespace)
            if uid not in {each["uid"] for each in claim["status"]["reservedFor"]}:
                raise DemoError(f"claim {namespace}/{name} is not reserved for the pod")
            self._prepare(claim, uid)
        views = {
            container["name"]: inject(self.cdi_directory, self._cdi_ids(placement, container))
            for container in pod["spec"]["containers"]
        }
        self._report(pod, "Running")
        return views

    def stop(self, pod: Body) -> None:
        """Ends a pod: has its claims unprepared that no other pod uses, then lets it go."""
        uid = pod["metadata"]["uid"]
        for prepared in list(self._claims.values()):
            if uid not in prepared.pods:
                continue
            prepared.pods.remove(uid)
            if prepared.pods:
                self.narrator.say(f"claim {prepared.claim.name}: another pod still uses it")
            else:
                self._unprepare(prepared)
        self._report(pod, "Succeeded")
        self.client.delete(
            PODS,
            pod["metadata"]["name"],
            namespace=pod["metadata"]["namespace"],
            grace_period_seconds=0,
        )

    def _prepare(self, claim: Body, pod_uid: str) -> None:
        metadata = claim["metadata"]
        known = self._claims.get(metadata["uid"])
        if known is not None:
            known.pods.add(pod_uid)
            self.narrator.say(f"claim {metadata['name']}: prepared already, no call")
            return
        asked = dra.Claim(
            namespace=metadata["namespace"], name=metadata["name"], uid=metadata["uid"]
        )
        self.narrator.call(f"{self.node} -> NodePrepareResources {_named(asked)}")
        begun = self.clock()
        response = self._ask(
            "NodePrepareResources",
            dra.NodePrepareResourcesRequest(claims=[asked]),
            dra.NodePrepareResourcesResponse,
        )
        self.prepare_seconds.append(self.clock() - begun)
        answer = response.claims[asked.uid]
        if answer.error:
            raise DemoError(f"{_named(asked)} cannot be prepared: {answer.error}")
        devices = list(answer.devices)
        for device in devices:
            requests, ids = ",".join(device.request_names), ",".join(device.cdi_device_ids)
            self.narrator.call(
                f"{self.node} <- {device.pool_name}/{device.device_name} for {requests}: {ids}"
            )
        self._claims[asked.uid] = _Prepared(asked, devices, {pod_uid})

    def _unprepare(self, prepared: _Prepared) -> None:
        asked = prepared.claim
        self.narrator.call(f"{self.node} -> NodeUnprepareResources {_named(asked)}")
        begun = self.clock()
        response = self._ask(
            "NodeUnprepareResources",
            dra.NodeUnprepareResourcesRequest(claims=[asked]),
            dra.NodeUnprepareResourcesResponse,
        )
        self.unprepare_seconds.append(self.clock() - begun)
        if asked.uid not in response.claims or response.claims[asked.uid].error:
            raise DemoError(f"{_named(asked)} cannot be unprepared: {response}")
        self.narrator.call(f"{self.node} <- done")
        del self._claims[asked.uid]

    def _cdi_ids(self, placement: Placement, container: Body) -> list[str]:
        """The CDI devices of the requests that a container names."""
        status = placement.pod.get("status", {})
        generated = {
            each["name"]: each["resourceClaimName"]
            for each in status.get("resourceClaimStatuses", ())
        }
        claims = {
            each["name"]: each.get("resourceClaimName") or generated[each["name"]]
            for each in placement.pod["spec"].get("resourceClaims", ())
        }
        wanted = [
            (claims[each["name"]], each.get("request"))
            for each in container.get("resources", {}).get("claims", ())
        ]
        extended = status.get("extendedResourceClaimStatus", {})
        wanted += [
            (extended["resourceClaimName"], each["requestName"])
            for each in extended.get("requestMappings", ())
            if each["containerName"] == container["name"]
        ]
        prepared = {
            (each.claim.namespace, each.claim.name): each.devices for each in self._claims.values()
        }
        namespace = placement.pod["metadata"]["namespace"]
        return [
            cdi_id
            for claim, request in wanted
            for device in prepared[namespace, claim]
            if request is None or request in device.request_names
            for cdi_id in device.cdi_device_ids
        ]

    def _report(self, pod: Body, phase: str) -> None:
        self.client.patch(
            PODS,
            pod["metadata"]["name"],
            MergePatch({"status": {"phase": phase}}),
            namespace=pod["metadata"]["namespace"],
            subresource="status",
        )

    def _ask(self, method: str, request: Any, response: Any) -> Any:
        if self._channel is None:
            raise DemoError(f"no plugin has registered on {self.node}")
        return _call(
            self._channel, f"k8s.io.kubelet.pkg.apis.dra.{_SERVICE}/{method}", request, response
        )


def _call(channel: grpc.Channel, method: str, request: Any, response: Any) -> Any:
    call = channel.unary_unary(
        f"/{method}",
        request_serializer=type(request).SerializeToString,
        response_deserializer=response.FromString,
    )
    try:
        # A socket is there a moment before anybody listens on it.
        return call(request, timeout=_PATIENCE_SECONDS, wait_for_ready=True)
    except grpc.RpcError as error:
        raise DemoError(f"the plugin does not answer {method}: {error}") from error


def _named(claim: dra.Claim) -> str:
    return f"{claim.namespace}/{claim.name}"
