"""Stands in for the kubelet: registers the plugin and calls it to prepare and unprepare claims.

Like the kubelet, it has a claim prepared once however many pods share it, has it unprepared after
the last of these pods, and gives a container the CDI devices of its own requests. It starts no
container.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import grpc

from carina_dra.kube.api_resource import PODS, RESOURCE_CLAIMS
from carina_dra.kube.body import Body
from carina_dra.kube.client import Client, MergePatch
from kubelet_plugin.kubelet.pb import dra_v1_pb2 as dra
from kubelet_plugin.kubelet.pb import plugin_registration_v1_pb2 as registration
from simulation.demo.console import Console, DemoError
from simulation.demo.container_runtime import ContainerView, inject
from simulation.demo.scheduler import ScheduledPod

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
    """The kubelet of a node, with the durations of its calls in seconds."""

    node: str
    registry: Path
    cdi_directory: Path
    client: Client
    console: Console
    clock: Callable[[], float] = time.perf_counter
    prepare_seconds: list[float] = field(default_factory=list)
    unprepare_seconds: list[float] = field(default_factory=list)
    _channel: grpc.Channel | None = field(default=None)
    _claims: dict[str, _Prepared] = field(default_factory=dict)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._channel is not None:
            self._channel.close()

    def find_plugin(self) -> Path | None:
        """The plugin's registration socket, once it exists."""
        return next(iter(self.registry.glob("*-reg.sock")), None)

    def register(self, socket: Path) -> registration.PluginInfo:
        """Asks the plugin for its name and endpoint, and registers it."""
        with grpc.insecure_channel(f"unix:{socket}", _RETRY_SOON) as channel:
            info: registration.PluginInfo = _call(
                channel,
                "pluginregistration.Registration/GetInfo",
                registration.InfoRequest(),
                registration.PluginInfo,
            )
            if info.type != "DRAPlugin" or _SERVICE not in info.supported_versions:
                raise DemoError(f"{socket} is not a DRA plugin with service {_SERVICE}: {info}")
            _call(
                channel,
                "pluginregistration.Registration/NotifyRegistrationStatus",
                registration.RegistrationStatus(plugin_registered=True),
                registration.RegistrationStatusResponse,
            )
        self._channel = grpc.insecure_channel(f"unix:{info.endpoint}")
        return info

    def start(self, scheduled: ScheduledPod) -> dict[str, ContainerView]:
        """Prepares the claims of a pod; gives what its containers are started with, by name."""
        pod = scheduled.pod
        uid, namespace = pod["metadata"]["uid"], pod["metadata"]["namespace"]
        for name in scheduled.claims:
            claim = self.client.get(RESOURCE_CLAIMS, name, namespace=namespace)
            if uid not in {consumer["uid"] for consumer in claim["status"]["reservedFor"]}:
                raise DemoError(f"claim {namespace}/{name} is not reserved for the pod")
            self._prepare(claim, uid)
        views = {
            container["name"]: inject(self.cdi_directory, self._cdi_ids(scheduled, container))
            for container in pod["spec"]["containers"]
        }
        self._report(pod, "Running")
        return views

    def stop(self, pod: Body) -> None:
        """Stops a pod: unprepares the claims that no other pod uses, then deletes it."""
        uid = pod["metadata"]["uid"]
        for prepared in list(self._claims.values()):
            if uid not in prepared.pods:
                continue
            prepared.pods.remove(uid)
            if prepared.pods:
                self.console.say(f"claim {prepared.claim.name}: another pod still uses it")
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
            self.console.say(f"claim {metadata['name']}: already prepared, no call")
            return
        asked = dra.Claim(
            namespace=metadata["namespace"], name=metadata["name"], uid=metadata["uid"]
        )
        self.console.call(f"{self.node} -> NodePrepareResources {_named(asked)}")
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
            self.console.call(
                f"{self.node} <- {device.pool_name}/{device.device_name} for {requests}: {ids}"
            )
        self._claims[asked.uid] = _Prepared(asked, devices, {pod_uid})

    def _unprepare(self, prepared: _Prepared) -> None:
        asked = prepared.claim
        self.console.call(f"{self.node} -> NodeUnprepareResources {_named(asked)}")
        begun = self.clock()
        response = self._ask(
            "NodeUnprepareResources",
            dra.NodeUnprepareResourcesRequest(claims=[asked]),
            dra.NodeUnprepareResourcesResponse,
        )
        self.unprepare_seconds.append(self.clock() - begun)
        if asked.uid not in response.claims or response.claims[asked.uid].error:
            raise DemoError(f"{_named(asked)} cannot be unprepared: {response}")
        self.console.call(f"{self.node} <- done")
        del self._claims[asked.uid]

    def _cdi_ids(self, scheduled: ScheduledPod, container: Body) -> list[str]:
        """The CDI devices of the requests that a container names."""
        status = scheduled.pod.get("status", {})
        generated = {
            entry["name"]: entry["resourceClaimName"]
            for entry in status.get("resourceClaimStatuses", ())
        }
        claims = {
            entry["name"]: entry.get("resourceClaimName") or generated[entry["name"]]
            for entry in scheduled.pod["spec"].get("resourceClaims", ())
        }
        wanted = [
            (claims[entry["name"]], entry.get("request"))
            for entry in container.get("resources", {}).get("claims", ())
        ]
        extended = status.get("extendedResourceClaimStatus", {})
        wanted += [
            (extended["resourceClaimName"], mapping["requestName"])
            for mapping in extended.get("requestMappings", ())
            if mapping["containerName"] == container["name"]
        ]
        prepared = {
            (known.claim.namespace, known.claim.name): known.devices
            for known in self._claims.values()
        }
        namespace = scheduled.pod["metadata"]["namespace"]
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
            raise DemoError(f"no plugin is registered on {self.node}")
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
        # The socket exists a moment before the plugin listens on it.
        return call(request, timeout=_PATIENCE_SECONDS, wait_for_ready=True)
    except grpc.RpcError as error:
        raise DemoError(f"the plugin does not answer {method}: {error}") from error


def _named(claim: dra.Claim) -> str:
    return f"{claim.namespace}/{claim.name}"
