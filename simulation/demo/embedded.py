"""The demo on simulated nodes: the real plugin, and stand-ins for the other components."""

import contextlib
import json
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from carina_dra.kube.api_resource import (
    NAMESPACES,
    NODES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from carina_dra.kube.body import Body
from carina_dra.kube.client import Client, Selection
from carina_dra.resource import Device, StringAttribute
from kubelet_plugin.claims.checkpoint import parse_checkpoint
from kubelet_plugin.devices.kind import DeviceKind
from simulation.api_server.api import Api
from simulation.api_server.server import ApiServer
from simulation.demo import manifests, queue_gate, two_teams
from simulation.demo.claim_controller import release_claims
from simulation.demo.console import Console
from simulation.demo.container_runtime import ContainerView, specs
from simulation.demo.controller_process import start_controller
from simulation.demo.expected_devices import (
    allocated,
    devices_of,
    gpus_behind,
    gpus_of,
    partitions_among,
)
from simulation.demo.gpu_node import DRIVER, GpuNode
from simulation.demo.kubelet import Kubelet
from simulation.demo.scheduler import ScheduledPod, schedule, snapshot
from simulation.demo.stand_ins import StandIns
from simulation.demo.wait import wait_for

_NODES = {"node-1": "hgx-h200-sxm", "node-2": "l40s"}
_GPUS = 12
_PARTITIONS = 8 * 25
"""The profiles of an H200 at their placements; L40S have no MIG."""


@dataclass(frozen=True, slots=True)
class RunningPod:
    """A running pod and the kubelet that runs it."""

    scheduled: ScheduledPod
    kubelet: Kubelet


def run(console: Console, *, keep: bool) -> None:
    """Runs the demo; with `keep` it waits for Ctrl-C before it deletes the pods.

    Raises:
        DemoError: a check failed.
    """
    begun = time.monotonic()
    # Not below TMPDIR, which may be long: the path of a socket has at most 107 bytes.
    directory = Path(tempfile.mkdtemp(prefix="carina-demo-", dir="/tmp"))
    console.say(f"All files are below {directory}")
    with contextlib.ExitStack() as cleanup:
        server = cleanup.enter_context(ApiServer(Api(admit=queue_gate.admit)))
        client = cleanup.enter_context(Client(server.connection, user_agent="demo"))
        kubeconfig = directory / "kubeconfig"
        server.write_kubeconfig(kubeconfig)
        nodes = [GpuNode.create(directory / name, name, of) for name, of in _NODES.items()]
        kubelets = _start_nodes(console, client, nodes, kubeconfig, cleanup)
        _show_slices(console, client)
        apply_started = time.monotonic()
        pods = 0
        for examples in (manifests.EXAMPLES, manifests.PARTS):
            objects, running = _run_examples(console, client, kubelets, examples)
            pods += len(running)
            if keep:
                console.wait_for_interrupt(kubeconfig)
            _delete(console, client, objects, running)
        examples_ended = time.monotonic()
        _show_queues(console, client, kubelets, kubeconfig)
        _check_nothing_is_left(console, client, nodes)
        _stop(console, nodes)
        slices = len(client.list(RESOURCE_SLICES).items)
        finished = time.monotonic()
    console.headline("Summary")
    prepared = [taken for kubelet in kubelets.values() for taken in kubelet.prepare_seconds]
    unprepared = [taken for kubelet in kubelets.values() for taken in kubelet.unprepare_seconds]
    console.say(
        f"nodes            {len(nodes)}, with {_GPUS} GPUs in {slices} ResourceSlices\n"
        f"pods             {pods}, from {len(manifests.EXAMPLES + manifests.PARTS)} examples\n"
        f"claims           {len(prepared)} prepared, {len(unprepared)} unprepared\n"
        f"prepare          {_milliseconds(prepared)}\n"
        f"unprepare        {_milliseconds(unprepared)}\n"
        f"checks           {console.checked}, all passed\n"
        f"time             {finished - begun:.1f} s, "
        f"{examples_ended - apply_started:.1f} s of them for the examples\n"
        f"files            {directory} (logs in controller.log and node-*/plugin.log)\n"
        f"look around      {sys.executable} -m simulation.demo --keep waits while the pods run"
    )


def _milliseconds(seconds: list[float]) -> str:
    return (
        f"{statistics.median(seconds) * 1000:.1f} ms median, {max(seconds) * 1000:.1f} ms at most"
    )


def _start_nodes(
    console: Console,
    client: Client,
    nodes: list[GpuNode],
    kubeconfig: Path,
    cleanup: contextlib.ExitStack,
) -> dict[str, Kubelet]:
    console.headline("Two nodes start, each with a kubelet plugin that reads the GPUs through NVML")
    console.say("The plugin is real. NVML below it, the API, the kubelet and the")
    console.say("scheduler are small stand-ins; CLUSTER=real uses the real ones.")
    for name in ("namespace", "deviceclass"):
        for body in manifests.load(manifests.DEPLOY / f"{name}.yaml"):
            manifests.create(client, body)
    for node in nodes:
        allocatable = {"cpu": "64", "memory": "1Ti", "pods": "110"}
        status = {"allocatable": allocatable}
        client.create(NODES, {"metadata": {"name": node.name}, "status": status})
        cleanup.callback(node.stop)
        node.start(kubeconfig)
    kubelets = {}
    for node in nodes:
        kubelet = Kubelet(node.name, node.paths.registry, node.paths.cdi_directory, client, console)
        cleanup.enter_context(kubelet)
        kubelets[node.name] = kubelet

        def socket(node: GpuNode = node, kubelet: Kubelet = kubelet) -> Path | None:
            node.check_alive()
            return kubelet.find_plugin()

        info = kubelet.register(wait_for(f"the plugin's socket on {node.name}", socket))
        console.call(f"{node.name} -> GetInfo")
        console.call(f"{node.name} <- {info.name}, speaks {', '.join(info.supported_versions)}")
        console.check(f"{node.name} has the plugin {DRIVER} registered", info.name == DRIVER)
    return kubelets


def _show_slices(console: Console, client: Client) -> None:
    console.headline("ResourceSlices: the GPUs that the plugins publish for the scheduler")

    def published() -> dict[str, list[Device]] | None:
        found = _devices(client)
        return found if all(found.values()) else None

    devices = wait_for("the slices of both nodes", published)
    for node, offered in sorted(devices.items()):
        console.say(f"{node}:")
        partitions = [device for device in offered if _text(device, "type") == "mig"]
        for device in offered:
            if device not in partitions:
                product, uuid = _text(device, "productName"), _text(device, "uuid")
                memory = device.capacity["memory"].value if device.capacity else "to be seen only"
                console.say(f"  {device.name}  {product}  {memory}  {uuid}")
        profiles = dict.fromkeys(_text(device, "profile") for device in partitions)
        console.say(f"  {len(partitions)} MIG partitions  {', '.join(profiles)}")
    kinds = Counter(_text(device, "type") for offered in devices.values() for device in offered)
    console.check(
        f"all {_GPUS} GPUs are published, to be used whole, in parts, shared and monitored",
        kinds == dict.fromkeys(DeviceKind, _GPUS) | {DeviceKind.MIG: _PARTITIONS},
    )


def _text(device: Device, name: str) -> str:
    attribute = device.attributes[name]
    return attribute.value if isinstance(attribute, StringAttribute) else "?"


def _run_examples(
    console: Console, client: Client, kubelets: dict[str, Kubelet], examples: Sequence[str]
) -> tuple[list[Body], list[RunningPod]]:
    """Creates the examples one by one; their pods run at the same time."""
    objects: list[Body] = []
    running: list[RunningPod] = []
    for name in examples:
        path = manifests.example(name)
        console.headline(f"{name}: {manifests.purpose(path)}")
        created = [manifests.create(client, body) for body in manifests.load(path)]
        objects += created
        for pod in manifests.pods(created):
            scheduled = schedule(client, pod)
            kubelet = kubelets[scheduled.node]
            _show_pod(console, client, scheduled, kubelet, whole_spec=not running)
            running.append(RunningPod(scheduled, kubelet))
    return objects, running


def _show_pod(
    console: Console,
    client: Client,
    scheduled: ScheduledPod,
    kubelet: Kubelet,
    *,
    whole_spec: bool,
) -> None:
    namespace = scheduled.pod["metadata"]["namespace"]
    claims = [client.get(RESOURCE_CLAIMS, name, namespace=namespace) for name in scheduled.claims]
    for claim in claims:
        results = claim["status"]["allocation"]["devices"]["results"]
        given = ", ".join(f"{result['request']}={result['device']}" for result in results)
        console.say(f"claim {claim['metadata']['name']} on {scheduled.node}: {given}")
    views = kubelet.start(scheduled)
    written = [
        path
        for path in specs(kubelet.cdi_directory)
        for claim in claims
        if claim["metadata"]["uid"] in path.name
    ]
    console.check("each claim has a CDI spec of its own", len(written) == len(claims))
    for path in written:
        if whole_spec:
            console.say(f"{path}:")
            console.spec(json.loads(path.read_text()))
        else:
            console.say(f"CDI spec {path}")
    uuids = _uuids(client, scheduled.node)
    for container in scheduled.pod["spec"]["containers"]:
        view = views[container["name"]]
        own = devices_of(container, allocated(claims))
        console.say(
            f"container {container['name']}: {', '.join(view.device_nodes)}; {view.mounts} files "
            "of the driver"
        )
        console.check(
            f"{container['name']} sees the devices of its requests and no others: {', '.join(own)}",
            gpus_behind(view.device_nodes) == gpus_of(own),
        )
        made = partitions_among(own)
        console.check(
            f"{container['name']} has their UUIDs in its environment",
            sorted(_uuids_in(view, "GPU-"))
            == sorted(uuids[device] for device in own if device not in made)
            and len(set(_uuids_in(view, "MIG-"))) == len(made),
        )


def _uuids_in(view: ContainerView, prefix: str) -> list[str]:
    """The UUIDs in a container's environment that begin like this."""
    return [value for value in view.environment.values() if value.startswith(prefix)]


def _uuids(client: Client, node: str) -> dict[str, str]:
    """The UUIDs of the node's devices that exist before a claim has them."""
    return {
        device.name: _text(device, "uuid")
        for device in _devices(client)[node]
        if "uuid" in device.attributes
    }


def _devices(client: Client) -> dict[str, list[Device]]:
    """The devices that each node offers to the scheduler."""
    cluster = snapshot(client)
    return {
        name: [candidate.device for pool in cluster.state(name).ready for candidate in pool.devices]
        for name in cluster.nodes
    }


def _delete(
    console: Console, client: Client, objects: list[Body], running: list[RunningPod]
) -> None:
    console.headline(
        "The pods are deleted, and with the last pod of a claim what was prepared for it"
    )
    for running_pod in running:
        pod = running_pod.scheduled.pod
        console.say(f"pod {pod['metadata']['name']}")
        running_pod.kubelet.stop(pod)
        release_claims(client, pod, running_pod.scheduled.claims)
    for body in objects:
        if body["kind"] != "Pod":
            manifests.delete(client, body)


def _show_queues(
    console: Console, client: Client, kubelets: dict[str, Kubelet], kubeconfig: Path
) -> None:
    for name in two_teams.TEAMS:
        client.create(NAMESPACES, {"metadata": {"name": name}})
    controller = start_controller(kubeconfig, kubeconfig.parent / "controller.log")
    stand_ins = StandIns(client, kubelets)

    def attend() -> None:
        controller.check_alive()
        with console.quiet():  # the kubelets' calls have been shown
            stand_ins.attend()

    try:
        two_teams.show(console, kubeconfig, _GPUS, attend)
    finally:
        stopped = controller.stop()
    console.check("the controller exits with 0", stopped == 0)


def _check_nothing_is_left(console: Console, client: Client, nodes: list[GpuNode]) -> None:
    for node in nodes:
        console.check(f"{node.name} has no CDI spec left", not specs(node.paths.cdi_directory))
        checkpoint = parse_checkpoint(
            (node.paths.plugin_directory / "checkpoint.jsonl").read_bytes()
        )
        console.check(f"{node.name} has an empty checkpoint", not checkpoint.claims)
    for resource in (PODS, RESOURCE_CLAIMS):
        left = client.list(resource, Selection()).items
        console.check(f"no {resource.plural} are left in the API", not left)


def _stop(console: Console, nodes: list[GpuNode]) -> None:
    console.headline("The plugins stop; their slices stay for the plugins that replace them")
    for node in nodes:
        console.check(f"the plugin of {node.name} exits with 0", node.stop() == 0)
        sockets = [
            *node.paths.registry.glob("*.sock"),
            *node.paths.plugin_directory.glob("*.sock"),
        ]
        console.check(f"{node.name} has no sockets left", not sockets)
