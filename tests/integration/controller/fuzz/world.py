"""50 nodes of 8 H100 with all that the plugin publishes of them, queues and namespaces."""

import json
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from carina_dra.kube.api_resource import NODES, RESOURCE_SLICES
from carina_dra.kube.body import Body
from carina_dra.kube.client import Client
from carina_dra.kube.kubeconfig import from_kubeconfig
from carina_dra.resource import encode
from controller.names import QUEUES
from kubelet_plugin.devices.device import of_kinds
from kubelet_plugin.devices.kind import DeviceKind
from kubelet_plugin.devices.publish_settings import PublishSettings
from kubelet_plugin.publish.pool import pool
from kubelet_plugin.publish.sync import resource_slices
from simulation.kubernetes.cluster import Cluster, fake_node, running_cluster
from simulation.kubernetes.control_plane import Arguments
from tests.integration.controller.fuzz.generator import Target
from tests.integration.controller.live.site import DRIVER
from tests.samples.golden_slices import simulated_devices

NODE_NUMBER: Final = 50
GPUS: Final = 8
EVICTION_GRACE: Final = 10
"""Seconds that reclaimed pods have."""
BYSTANDER: Final = "bystander"
OWNER: Final = "owner"
HOSTILE: Final = ("hostile-0", "hostile-1")
"""The namespaces of the hostile tenant."""
_CONTROLLER: Final = "system:serviceaccount:carina-system:carina-controller"
_WRITERS: Final = 8


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a queue has, in physical GPUs."""

    quota: int
    limit: int
    namespaces: tuple[str, ...]


OWNER_QUOTA: Final = 40
QUEUE_ALLOWANCES: Final[Mapping[str, Allowance]] = {
    BYSTANDER: Allowance(60, 60, (BYSTANDER,)),
    OWNER: Allowance(OWNER_QUOTA, OWNER_QUOTA, (OWNER,)),
    # What it may have leaves less than the owner's quota free, beside what bystanders use.
    "hostile": Allowance(200, 330, HOSTILE),
    "petty": Allowance(0, 20, HOSTILE),
}
TARGETS: Final = tuple(
    Target(namespace, ("hostile", "hostile", "petty"), (BYSTANDER, OWNER, "absent"))
    for namespace in HOSTILE
)


@dataclass(frozen=True, slots=True)
class World:
    """A control plane with nodes and queues."""

    cluster: Cluster
    client: Client
    """Of an administrator."""
    audit_log: Path
    """The writes of the controller, a JSON object in each line."""

    def tenant_kubeconfig(self) -> Path:
        """The credentials of the hostile tenant."""
        return self.cluster.service_account_credentials(HOSTILE[0], "fuzzer").kubeconfig


@contextmanager
def running_world() -> Iterator[World]:
    """Runs it until the context ends."""
    with tempfile.TemporaryDirectory() as folder:
        policy, log = Path(folder, "policy.json"), Path(folder, "audit.log")
        policy.write_text(json.dumps(_audit_policy()))
        arguments = Arguments(
            api_server=(
                "--disable-admission-plugins=TaintNodesByCondition",
                f"--audit-policy-file={policy}",
                f"--audit-log-path={log}",
            ),
            controller_manager=(
                "--controllers=*,-node-lifecycle-controller,-taint-eviction-controller",
            ),
        )
        with (
            running_cluster(arguments=arguments) as cluster,
            Client(from_kubeconfig(cluster.kubeconfig)) as client,
        ):
            cluster.install_carina()
            # The controller also has to stand claims from before the policy.
            of_configurations = "carina-device-configuration"
            cluster.kubectl("delete", "validatingadmissionpolicybinding", of_configurations)
            world = World(cluster, client, log)
            _add_nodes(client)
            for namespace in (BYSTANDER, OWNER, *HOSTILE):
                cluster.create_namespace(namespace)
            cluster.kubectl("delete", "daemonset,deployment", "--all", "-n", "carina-system")
            for queue in queues():
                client.create(QUEUES, queue)
            _admit_tenant(cluster)
            yield world


def _audit_policy() -> Body:
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            {
                "level": "Metadata",
                "users": [_CONTROLLER],
                "verbs": ["create", "update", "patch", "delete", "deletecollection"],
            },
            {"level": "None"},
        ],
    }


def nodes() -> Iterator[tuple[Body, list[Body]]]:
    """The nodes, each with its slices."""
    with tempfile.TemporaryDirectory() as folder:
        kinds = {DeviceKind.GPU, DeviceKind.MIG, DeviceKind.SHARE}
        devices = of_kinds(simulated_devices("dgx-h100", Path(folder)), kinds)
    for index in range(NODE_NUMBER):
        name = f"n{index:02}"
        slices = resource_slices(pool(devices, PublishSettings(DRIVER), node=name), 1)
        texts = (json.dumps(encode(published)) for published in slices)
        # All GPUs differ.
        yield fake_node(name), [json.loads(text.replace("GPU-", f"GPU-{name}-")) for text in texts]


def queues() -> Iterator[Body]:
    """The queues."""
    for name, allowance in QUEUE_ALLOWANCES.items():
        spec: Body = {
            "resources": [{"gpus": {}, "quota": allowance.quota, "limit": allowance.limit}],
            "namespaces": {"names": list(allowance.namespaces)},
            "evictionGrace": f"{EVICTION_GRACE}s",
        }
        metadata = {"name": name}
        head = {"apiVersion": QUEUES.api_version, "kind": QUEUES.kind, "metadata": metadata}
        yield {**head, "spec": spec}


def _add_nodes(client: Client) -> None:
    def add(found: tuple[Body, list[Body]]) -> None:
        node, slices = found
        client.create(NODES, node)
        for body in slices:
            client.create(RESOURCE_SLICES, body)

    with ThreadPoolExecutor(_WRITERS) as writers:
        for _ in writers.map(add, nodes()):
            pass


def _admit_tenant(cluster: Cluster) -> None:
    """Gives a ServiceAccount the role `edit` in the hostile namespaces."""
    subject = {"kind": "ServiceAccount", "namespace": HOSTILE[0], "name": "fuzzer"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
    cluster.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _metadata("fuzzer", HOSTILE[0])},
        *(
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "RoleBinding",
                "metadata": _metadata("fuzzer", namespace),
                "subjects": [subject],
                "roleRef": role,
            }
            for namespace in HOSTILE
        ),
    )


def _metadata(name: str, namespace: str) -> Body:
    return {"name": name, "namespace": namespace}
