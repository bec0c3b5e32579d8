"""What the pods of the node have from device plugins: the kubelet's pod-resources API, v1.

The kubelet serves it on a socket below its root (KEP-606). The devices of DRA drivers are not among
those that are read here.
"""

from pathlib import Path
from typing import Any, Final

import grpc

from kubelet_plugin.kubelet.pb import pod_resources_v1_pb2 as pb
from kubelet_plugin.publish.other_drivers import PodDevice

_METHOD: Final = "/v1.PodResourcesLister/List"
_TIMEOUT: Final = 5.0
"""Seconds."""
_LARGEST: Final = 16 * 2**20
"""Bytes of the largest answer that is read, as in the kubelet's own client."""


def pod_devices(socket: Path) -> tuple[PodDevice, ...]:
    """Returns the devices that the node's pods have from device plugins.

    Raises:
        OSError: the kubelet does not answer.
    """
    options = (
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.max_receive_message_length", _LARGEST),
    )
    with grpc.insecure_channel(f"unix:{socket}", options) as channel:
        call: Any = channel.unary_unary(
            _METHOD,
            request_serializer=pb.ListPodResourcesRequest.SerializeToString,
            response_deserializer=pb.ListPodResourcesResponse.FromString,
        )
        try:
            answer: pb.ListPodResourcesResponse = call(
                pb.ListPodResourcesRequest(), timeout=_TIMEOUT
            )
        except grpc.RpcError as error:
            code: grpc.StatusCode = error.code()
            raise OSError(f"{socket}: {code.name}: {error.details()}") from error
    return tuple(
        PodDevice(devices.resource_name, identity, f"{pod.namespace}/{pod.name}")
        for pod in answer.pod_resources
        for container in pod.containers
        for devices in container.devices
        for identity in devices.device_ids
    )
