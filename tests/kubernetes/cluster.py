"""A running cluster, as the tests see it."""

import json
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.kubernetes import binaries, control_plane, process, state
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.state import StateDirectory


class KubectlError(RuntimeError):
    """kubectl failed; the message is what it said."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A control plane that is ready, and the administrator's access to it."""

    state: StateDirectory
    control_plane: ControlPlane
    kubectl_program: Path
    feature_gates: Mapping[str, bool]

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.control_plane.kubeconfig

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return self.control_plane.server

    @property
    def ca_file(self) -> Path:
        """What the API server's certificate is signed with."""
        return self.control_plane.authority.ca.certificate

    def kubectl(
        self, *arguments: str, stdin: str | None = None, kubeconfig: Path | None = None
    ) -> str:
        """What a kubectl command prints; as administrator, unless told otherwise.

        Raises:
            KubectlError: it exits with another status than 0.
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
            },
        )
        if done.returncode != 0:
            raise KubectlError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def apply(self, *objects: Mapping[str, object]) -> None:
        """Applies objects."""
        self.kubectl("apply", "-f", "-", stdin=_list(objects))

    def add_fake_nodes(self, names: Iterable[str]) -> None:
        """Adds nodes that have no kubelet: pods can be bound to them and never run."""
        self.kubectl("create", "-f", "-", stdin=_list([_fake_node(name) for name in names]))


@contextmanager
def running_cluster(
    *,
    feature_gates: Mapping[str, bool] | None = None,
    runtime_config: Mapping[str, bool] | None = None,
) -> Iterator[Cluster]:
    """A cluster as long as the context, or until this process ends, however it does.

    `feature_gates` holds for every component, nodes included; `runtime_config` turns API versions
    ("scheduling.k8s.io/v1beta1") on and off.

    Raises:
        BinariesMissingError: its programs are not there.
        ComponentDiedError: a component ended at start.
        NotReachedError: it did not become ready.
    """
    programs = binaries.control_plane()
    gates = dict(feature_gates or {})
    with state.claimed() as directory:
        running = control_plane.start(
            directory, programs, feature_gates=gates, runtime_config=runtime_config or {}
        )
        cluster = Cluster(directory, running, programs.kubectl, gates)
        if programs.controllers is not None:
            # Made by a controller some time after the namespace; no pod is admitted without.
            process.wait_for(
                "the ServiceAccount of namespace default",
                lambda: cluster.kubectl("get", "serviceaccount", "default", "-o", "name"),
                alive=running.processes,
                retry_on=(KubectlError,),
            )
        yield cluster


def _list(objects: Iterable[Mapping[str, object]]) -> str:
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})


def _fake_node(name: str) -> dict[str, object]:
    capacity = {"cpu": "64", "memory": "1Ti", "pods": "110"}
    ready = {"type": "Ready", "status": "True", "reason": "Fake", "message": "has no kubelet"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"capacity": capacity, "allocatable": capacity, "conditions": [ready]},
    }
