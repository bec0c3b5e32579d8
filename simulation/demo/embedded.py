"""The story on simulated nodes: the real plugin, and stand-ins for everything around it."""

import contextlib
import json
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from carina_dra.kube.api_resource import (
    NODES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from carina_dra.kube.body import Body
from carina_dra.kube.client import Client, Selection
from carina_dra.resource import Device, StringAttribute
from kubelet_plugin.claims.checkpoint import parse
from simulation.api_server.server import ApiServer
from simulation.demo import manifests
from simulation.demo.claim_controller import release_claims
from simulation.demo.console import Narrator
from simulation.demo.container_runtime import ContainerView, specs
from simulation.demo.expected_devices import allocated, devices_behind, devices_of
from simulation.demo.gpu_node import DRIVER, GpuNode
from simulation.demo.kubelet import Kubelet
from simulation.demo.scheduler import Placement, schedule, snapshot
from simulation.demo.wait import wait_for

_NODES = {"node-1": "hgx-h200-sxm", "node-2": "l40s"}
_GPUS = 12


@dataclass(frozen=True, slots=True)
class Running:
    """A pod that runs, and what it was made with."""

    placement: Placement
    kubelet: Kubelet


def run(narrator: Narrator, *, keep: bool) -> None:
    """Tells the story; `keep` stops before the pods are deleted, until Ctrl-C.

    Raises:
        DemoError: something was not as it ought to be.
    """
    begun = time.monotonic()
    # Not below TMPDIR, which may be long: a socket's path has room for 107 bytes.
    directory = Path(tempfile.mkdtemp(prefix="carina-demo-", dir="/tmp"))
    narrator.say(f"Everything is below {directory}")
    with contextlib.ExitStack() as cleanup:
        server = cleanup.enter_context(ApiServer())
        client = cleanup.enter_context(Client(server.connection, user_agent="demo"))
        kubeconfig = directory / "kubeconfig"
        server.write_kubeconfig(kubeconfig)
        nodes = [GpuNode.create(directory / name, name, of) for name, of in _NODES.items()]
        kubelets = _start_nodes(narrator, client, nodes, kubeconfig, cleanup)
        _show_slices(narrator, client)
        apply_started = time.monotonic()
        objects, running = _run_examples(narrator, client, kubelets)
        if keep:
            narrator.wait_for_interrupt(kubeconfig)
        _delete(narrator, client, objects, running)
        _check_nothing_is_left(narrator, client, nodes)
        _stop(narrator, nodes)
        slices = len(client.list(RESOURCE_SLICES).items)
        finished = time.monotonic()
    narrator.headline("Summary")
    prepared = [each for kubelet in kubelets.values() for each in kubelet.prepare_seconds]
    unprepared = [each for kubelet in kubelets.values() for each in kubelet.unprepare_seconds]
    narrator.say(
        f"nodes            {len(nodes)}, with {_GPUS} GPUs in {slices} ResourceSlices\n"
        f"pods             {len(running)} of {len(manifests.EXAMPLES)} examples\n"
        f"claims           {len(prepared)} prepared, {len(unprepared)} unprepared\n"
        f"prepare          {_milliseconds(prepared)}\n"
        f"unprepare        {_milliseconds(unprepared)}\n"
        f"checked          {narrator.checked} things, all right\n"
        f"time             {finished - begun:.1f} s, "
        f"{finished - apply_started:.1f} s of them for the examples\n"
        f"files            {directory} (plugin logs in node-*/plugin.log)\n"
        f"look around      {sys.executable} -m simulation.demo --keep stops while the pods run"
    )


def _milliseconds(seconds: list[float]) -> str:
    return (
        f"{statistics.median(seconds) * 1000:.1f} ms median, {max(seconds) * 1000:.1f} ms at most"
    )


def _start_nodes(
    narrator: Narrator,
    client: Client,
    nodes: list[GpuNode],
    kubeconfig: Path,
    cleanup: contextlib.ExitStack,
) -> dict[str, Kubelet]:
    narrator.headline("Two nodes start: on each the kubelet plugin, which reads its GPUs by NVML")
    narrator.say("The plugin is the real one; the NVML below it, the API, the kubelet and the")
    narrator.say("scheduler are small stand-ins. CLUSTER=real shows the real ones.")
    for name in ("namespace", "deviceclass"):
        for each in manifests.load(manifests.DEPLOY / f"{name}.yaml"):
            manifests.create(client, each)
    for node in nodes:
        client.create(NODES, {"metadata": {"name": node.name}})
        cleanup.callback(node.stop)
        node.start(kubeconfig)
    kubelets = {}
    for node in nodes:
        kubelet = Kubelet(
            node.name, node.paths.registry, node.paths.cdi_directory, client, narrator
        )
        cleanup.enter_context(kubelet)
        kubelets[node.name] = kubelet

        def socket(node: GpuNode = node, kubelet: Kubelet = kubelet) -> Path | None:
            node.check_alive()
            return kubelet.find_plugin()

        info = kubelet.register(wait_for(f"the plugin's socket on {node.name}", socket))
        narrator.call(f"{node.name} -> GetInfo")
        narrator.call(f"{node.name} <- {info.name}, speaks {', '.join(info.supported_versions)}")
        narrator.check(f"{node.name} has the plugin {DRIVER} registered", info.name == DRIVER)
    return kubelets


def _show_slices(narrator: Narrator, client: Client) -> None:
    narrator.headline("ResourceSlices: what the plugins tell the scheduler of their GPUs")

    def published() -> dict[str, list[Device]] | None:
        found = _devices(client)
        return found if all(found.values()) else None

    devices = wait_for("the slices of both nodes", published)
    for node, offered in sorted(devices.items()):
        narrator.say(f"{node}:")
        for device in offered:
            told = [_text(device, name) for name in ("productName", "uuid")]
            memory = device.capacity["memory"].value
            narrator.say(f"  {device.name}  {told[0]}  {memory}  {told[1]}")
    narrator.check(
        f"all {_GPUS} GPUs are published", sum(len(each) for each in devices.values()) == _GPUS
    )


def _text(device: Device, name: str) -> str:
    attribute = device.attributes[name]
    return attribute.value if isinstance(attribute, StringAttribute) else "?"


def _run_examples(
    narrator: Narrator, client: Client, kubelets: dict[str, Kubelet]
) -> tuple[list[Body], list[Running]]:
    """Applies the examples one by one, and lets their pods run together."""
    objects: list[Body] = []
    running: list[Running] = []
    for name in manifests.EXAMPLES:
        path = manifests.example(name)
        narrator.headline(f"{name}: {manifests.purpose(path)}")
        applied = [manifests.create(client, each) for each in manifests.load(path)]
        objects += applied
        for pod in manifests.pods(applied):
            placement = schedule(client, pod)
            kubelet = kubelets[placement.node]
            _show_pod(narrator, client, placement, kubelet, whole_spec=not running)
            running.append(Running(placement, kubelet))
    return objects, running


def _show_pod(
    narrator: Narrator,
    client: Client,
    placement: Placement,
    kubelet: Kubelet,
    *,
    whole_spec: bool,
) -> None:
    namespace = placement.pod["metadata"]["namespace"]
    claims = [client.get(RESOURCE_CLAIMS, each, namespace=namespace) for each in placement.claims]
    for claim in claims:
        results = claim["status"]["allocation"]["devices"]["results"]
        given = ", ".join(f"{each['request']}={each['device']}" for each in results)
        narrator.say(f"claim {claim['metadata']['name']} on {placement.node}: {given}")
    views = kubelet.start(placement)
    written = [
        path
        for path in specs(kubelet.cdi_directory)
        for claim in claims
        if claim["metadata"]["uid"] in path.name
    ]
    narrator.check("each claim has a CDI spec of its own", len(written) == len(claims))
    for path in written:
        if whole_spec:
            narrator.say(f"{path}:")
            narrator.spec(json.loads(path.read_text()))
        else:
            narrator.say(f"CDI spec {path}")
    uuids = _uuids(client, placement.node)
    for container in placement.pod["spec"]["containers"]:
        view = views[container["name"]]
        own = devices_of(container, allocated(claims))
        narrator.say(
            f"container {container['name']}: {', '.join(view.device_nodes)}; {view.mounts} files "
            "of the driver"
        )
        narrator.check(
            f"{container['name']} sees what its requests were given and no more: {', '.join(own)}",
            devices_behind(view.device_nodes) == own,
        )
        narrator.check(
            f"{container['name']} is told the UUIDs of these",
            sorted(_told(view)) == sorted(uuids[gpu] for gpu in own),
        )


def _told(view: ContainerView) -> list[str]:
    """The UUIDs in a container's environment."""
    return [value for value in view.environment.values() if value.startswith("GPU-")]


def _uuids(client: Client, node: str) -> dict[str, str]:
    return {device.name: _text(device, "uuid") for device in _devices(client)[node]}


def _devices(client: Client) -> dict[str, list[Device]]:
    """The devices that each node offers to the scheduler."""
    cluster = snapshot(client)
    return {
        name: [candidate.device for pool in cluster.state(name).ready for candidate in pool.devices]
        for name in cluster.nodes
    }


def _delete(
    narrator: Narrator, client: Client, objects: list[Body], running: list[Running]
) -> None:
    narrator.headline("The pods are deleted: what was made for their claims goes with the last one")
    for each in running:
        pod = each.placement.pod
        narrator.say(f"pod {pod['metadata']['name']}")
        each.kubelet.stop(pod)
        release_claims(client, pod, each.placement.claims)
    for body in objects:
        if body["kind"] != "Pod":
            manifests.delete(client, body)


def _check_nothing_is_left(narrator: Narrator, client: Client, nodes: list[GpuNode]) -> None:
    for node in nodes:
        narrator.check(f"{node.name} has no CDI spec left", not specs(node.paths.cdi_directory))
        checkpoint = parse((node.paths.plugin_directory / "checkpoint.jsonl").read_bytes())
        narrator.check(f"{node.name} has an empty checkpoint", not checkpoint.claims)
    for resource in (PODS, RESOURCE_CLAIMS):
        left = client.list(resource, Selection()).items
        narrator.check(f"no {resource.plural} are left in the API", not left)


def _stop(narrator: Narrator, nodes: list[GpuNode]) -> None:
    narrator.headline("The plugins stop; their slices stay, for the ones that come after them")
    for node in nodes:
        narrator.check(f"the plugin of {node.name} ends well", node.stop() == 0)
        sockets = [
            *node.paths.registry.glob("*.sock"),
            *node.paths.plugin_directory.glob("*.sock"),
        ]
        narrator.check(f"{node.name} has no sockets left", not sockets)
