"""A running cluster, as tests use it."""

import json
import os
import subprocess
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from carina_dra.kube.api_resource import NAMESPACES, SERVICE_ACCOUNTS
from carina_dra.kube.client import Client
from carina_dra.kube.errors import NotFound
from carina_dra.kube.kubeconfig import from_kubeconfig
from simulation.kubernetes import binaries, control_plane, images, pki, process, state
from simulation.kubernetes.control_plane import Arguments, ControlPlane
from simulation.kubernetes.state import StateDirectory

DEPLOY = Path(__file__).parents[2] / "deploy"
"""The shipped manifests."""
_NO_ARGUMENTS: Final = Arguments()


class KubectlError(RuntimeError):
    """kubectl failed; the message is its error output."""


@dataclass(frozen=True, slots=True)
class ServiceAccountCredentials:
    """The credentials of a pod with a ServiceAccount.

    `folder` has the content of /var/run/secrets/kubernetes.io/serviceaccount; `kubeconfig` has the
    same credentials.
    """

    folder: Path
    kubeconfig: Path


@dataclass(frozen=True, slots=True)
class Cluster:
    """A ready control plane, with administrator access.

    Without controllers (`controllers_run`), nothing is scheduled, and no claim is created from a
    template.
    """

    state: StateDirectory
    control_plane: ControlPlane
    kubectl_program: Path
    feature_gates: Mapping[str, bool]
    controllers_run: bool

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.control_plane.kubeconfig

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return self.control_plane.server

    @property
    def ca_file(self) -> Path:
        """The certificate of the CA that signed the API server's certificate."""
        return self.control_plane.authority.ca.certificate

    def kubectl(
        self, *arguments: str, stdin: str | None = None, kubeconfig: Path | None = None
    ) -> str:
        """Runs kubectl and returns its output; as administrator, unless `kubeconfig` is set.

        Raises:
            KubectlError: kubectl exits with a status other than 0.
        """
        done = subprocess.run(
            [self.kubectl_program, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            env={
                **os.environ,
                "KUBECONFIG": str(kubeconfig or self.kubeconfig),
                "KUBECACHEDIR": str(self.state.path / "kubectl"),
                "GOGC": "off",  # it ends before it could need its memory again
            },
        )
        if done.returncode != 0:
            raise KubectlError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def apply(self, *objects: Mapping[str, object]) -> None:
        """Applies objects."""
        self.kubectl("apply", "-f", "-", stdin=_list(objects))

    def install_carina(self, kustomization: Path = DEPLOY) -> None:
        """Applies deploy/ or an overlay of it, and waits until its policies are in force.

        An API server applies a new admission policy about a second after its creation.
        """
        listed = json.loads(self.kubectl("apply", "-k", str(kustomization), "-o", "json"))["items"]
        (role,) = (
            item
            for item in listed
            if item["kind"] == "ClusterRole"
            and item["metadata"].get("labels", {}).get("carina.dev/role") == "kubelet-plugin"
        )
        (account,) = (
            subject
            for item in listed
            if item["kind"] == "ClusterRoleBinding"
            and item["roleRef"]["name"] == role["metadata"]["name"]
            for subject in item["subjects"]
        )
        (driver,) = {name for rule in role["rules"] for name in rule.get("resourceNames", ())}
        (of_admins,) = (
            item["metadata"]["name"]
            for item in listed
            if item["kind"] == "DeviceClass"
            and "carina.dev/requires" in item["metadata"].get("labels", {})
        )
        plugin = f"--as=system:serviceaccount:{account['namespace']}:{account['name']}"
        policies = {
            item["metadata"]["name"]
            for item in listed
            if item["kind"] == "ValidatingAdmissionPolicy"
        }
        for probe, user in (
            (_probe_slice(driver, {"nodeName": "probe"}), (plugin,)),  # not by a pod of that node
            (_probe_slice(driver, {"allNodes": True}), ()),
            (_probe_claim(of_admins), ()),
            (_probe_pod({"nodeName": "probe"}), ()),
        ):
            process.wait_for(
                f"{', '.join(sorted(policies))} to be in force",
                partial(self._is_refused, probe, user, policies),
                retry_on=(KubectlError,),
            )
        self.await_queue_policies()

    def await_queue_policies(self) -> None:
        """Waits until pods of queues can be created.

        A policy with a Queue as parameter refuses all that it matches for up to half a minute after
        Queue is defined, and after each start of the API server.
        """
        process.wait_for(
            "pods of queues to be accepted, with their gate",
            self._is_gated,
            timeout=60.0,
            retry_on=(KubectlError,),
        )

    def _is_gated(self) -> bool:
        dry_run = ("create", "--dry-run=server", "-f", "-")
        self.kubectl(*dry_run, stdin=json.dumps(_probe_template()))
        created = self.kubectl(*dry_run, "-o", "json", stdin=json.dumps(_probe_pod({})))
        return "schedulingGates" in json.loads(created)["spec"]

    def _is_refused(
        self, probe: Mapping[str, object], user: Sequence[str], policies: Collection[str]
    ) -> bool:
        try:
            self.kubectl(*("create", "--dry-run=server", "-f", "-", *user), stdin=json.dumps(probe))
        except KubectlError as error:
            if any(f"ValidatingAdmissionPolicy '{policy}'" in str(error) for policy in policies):
                return True
            raise
        return False

    def create_namespace(self, name: str) -> str:
        """Creates a namespace in which pods can be created, and returns its name."""
        with Client(from_kubeconfig(self.kubeconfig)) as client:  # costs far less than kubectl
            client.create(NAMESPACES, {"metadata": {"name": name}})
        self.await_default_service_account(name)
        return name

    def await_default_service_account(self, namespace: str) -> None:
        """Waits for the namespace's default ServiceAccount, which pods need for their admission.

        A controller creates it after the namespace. Without controllers, this method creates it.
        """
        if self.controllers_run:
            with Client(from_kubeconfig(self.kubeconfig)) as client:
                process.wait_for(
                    f"the default ServiceAccount of namespace {namespace}",
                    lambda: client.get(SERVICE_ACCOUNTS, "default", namespace=namespace),
                    retry_on=(NotFound,),
                )
        else:
            metadata = {"namespace": namespace, "name": "default"}
            self.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})

    def assign_pod(self, namespace: str, name: str, *, service_account: str, node: str) -> None:
        """Creates an idle pod that is assigned to a node."""
        container = {"name": "pause", "image": images.PAUSE, "imagePullPolicy": "Never"}
        spec = {
            "serviceAccountName": service_account,
            "nodeName": node,
            "terminationGracePeriodSeconds": 0,
            "tolerations": [{"operator": "Exists"}],
            "containers": [container],
        }
        metadata = {"namespace": namespace, "name": name}
        self.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    def service_account_credentials(
        self, namespace: str, name: str, *, pod: str | None = None
    ) -> ServiceAccountCredentials:
        """Returns credentials as the kubelet gives them to `pod`, valid for a day.

        With None, the token is not bound to a pod. A token bound to a pod on a node names the node.
        """
        bound: tuple[str, ...] = ()
        if pod is not None:
            uid = self.kubectl(
                *("get", "pod", pod, "--namespace", namespace, "-o", "jsonpath={.metadata.uid}")
            )
            bound = ("--bound-object-kind=Pod", f"--bound-object-name={pod}")
            bound += (f"--bound-object-uid={uid}",)
        token = self.kubectl(
            *("create", "token", name, "--namespace", namespace, "--duration=24h", *bound)
        )
        folder = self.state.path / "service-accounts" / namespace / name / (pod or "unbound")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "token").write_text(token.strip())
        (folder / "namespace").write_text(namespace)
        (folder / "ca.crt").write_bytes(self.ca_file.read_bytes())
        kubeconfig = pki.write_kubeconfig(
            folder / "kubeconfig",
            server=self.server,
            ca=self.ca_file,
            user={"tokenFile": str(folder / "token")},
        )
        return ServiceAccountCredentials(folder, kubeconfig)

    def add_fake_nodes(self, names: Iterable[str]) -> None:
        """Adds nodes without a kubelet; pods can be bound to them, but do not run."""
        self.kubectl("create", "-f", "-", stdin=_list([fake_node(name) for name in names]))


@contextmanager
def running_cluster(
    *,
    feature_gates: Mapping[str, bool] | None = None,
    runtime_config: Mapping[str, bool] | None = None,
    arguments: Arguments = _NO_ARGUMENTS,
) -> Iterator[Cluster]:
    """Runs a cluster until the context or this process ends, for whatever reason.

    `feature_gates` applies to all components, including nodes; `runtime_config` enables and
    disables API versions ("scheduling.k8s.io/v1beta1"). `arguments` are for one component each.

    Raises:
        BinariesMissingError: its programs are missing.
        ComponentDiedError: a component exited during its start.
        NotReachedError: the cluster did not become ready.
    """
    programs = binaries.control_plane()
    gates = dict(feature_gates or {})
    with state.claimed() as directory:
        running = control_plane.start(
            directory,
            programs,
            feature_gates=gates,
            runtime_config=runtime_config or {},
            arguments=arguments,
        )
        cluster = Cluster(
            state=directory,
            control_plane=running,
            kubectl_program=programs.kubectl,
            feature_gates=gates,
            controllers_run=programs.controllers is not None,
        )
        cluster.await_default_service_account("default")
        yield cluster


def fake_node(name: str) -> dict[str, object]:
    """A node without a kubelet, as an object of the API."""
    capacity = {"cpu": "64", "memory": "1Ti", "pods": "110"}
    ready = {"type": "Ready", "status": "True", "reason": "Fake", "message": "has no kubelet"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"capacity": capacity, "allocatable": capacity, "conditions": [ready]},
    }


def _probe_slice(driver: str, nodes: Mapping[str, object]) -> dict[str, object]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "probe"},
        "spec": {
            "driver": driver,
            "pool": {"name": "probe", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "probe"}],
            **nodes,
        },
    }


def _probe_claim(device_class: str) -> dict[str, object]:
    request = {"name": "probe", "exactly": {"deviceClassName": device_class}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "probe", "namespace": "default"},
        "spec": {"devices": {"requests": [request]}},
    }


def _probe_template() -> dict[str, object]:
    labels = {"scheduling.carina.dev/queue": "probe"}
    request = {"name": "probe", "exactly": {"deviceClassName": "probe"}}
    spec = {"devices": {"requests": [request]}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "probe", "namespace": "default"},
        "spec": {"metadata": {"labels": labels}, "spec": spec},
    }


def _probe_pod(spec: Mapping[str, object]) -> dict[str, object]:
    labels = {"scheduling.carina.dev/queue": "probe"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "probe", "namespace": "default", "labels": labels},
        "spec": {"containers": [{"name": "probe", "image": "probe"}], **spec},
    }


def _list(objects: Iterable[Mapping[str, object]]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
