"""etcd, the API server, the controllers and the scheduler, on loopback ports."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

from simulation.kubernetes import pki, process
from simulation.kubernetes.api_server import ApiServer
from simulation.kubernetes.binaries import ControllerBinaries, ControlPlaneBinaries
from simulation.kubernetes.pki import Authority
from simulation.kubernetes.process import Process
from simulation.kubernetes.state import StateDirectory

_ETCD, _ETCD_PEER, _API_SERVER, _CONTROLLER_MANAGER, _SCHEDULER = range(5)


@dataclass(frozen=True, slots=True)
class Arguments:
    """Further arguments of the components; the last of equal ones counts."""

    api_server: tuple[str, ...] = ()
    controller_manager: tuple[str, ...] = ()
    scheduler: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """A running control plane, and its administrator's files.

    `etcd`, `server` and `scheduler` are URLs; etcd does not use TLS.
    """

    etcd: str
    server: str
    scheduler: str
    authority: Authority
    kubeconfig: Path
    api_server: ApiServer
    others: tuple[Process, ...]
    """etcd, kube-controller-manager and kube-scheduler."""

    @property
    def processes(self) -> tuple[Process, ...]:
        """All of them."""
        return (self.api_server.process, *self.others)


def start(
    state: StateDirectory,
    binaries: ControlPlaneBinaries,
    *,
    feature_gates: Mapping[str, bool],
    runtime_config: Mapping[str, bool],
    arguments: Arguments,
) -> ControlPlane:
    """Starts a control plane and waits until its API server is ready.

    `feature_gates` applies to all Kubernetes components, and `runtime_config` ("group/version") to
    the API server.

    Raises:
        ComponentDiedError: a component exited during its start.
        NotReachedError: the API server did not become ready.
    """
    authority = pki.create_authority(state.path / "pki")
    gates = [f"--feature-gates={_pairs(feature_gates)}"] if feature_gates else []
    server = f"https://127.0.0.1:{state.port(_API_SERVER)}"
    etcd_url = f"http://127.0.0.1:{state.port(_ETCD)}"
    etcd = _start_etcd(state, binaries.etcd, etcd_url)
    admin = authority.issue("admin", user="carina-tests", group="system:masters")
    kubeconfig = pki.write_kubeconfig(
        state.path / "kubeconfig",
        server=server,
        ca=authority.ca.certificate,
        user=pki.client_certificate(admin),
    )
    tls = ssl.create_default_context(cafile=str(authority.ca.certificate))
    tls.load_cert_chain(admin.certificate, admin.key)
    command = _api_server_command(
        state,
        binaries.kube_apiserver,
        authority,
        [*gates, *_runtime_config(runtime_config), *arguments.api_server],
    )
    api_server = ApiServer(state, command, state.port(_API_SERVER), tls)
    api_server.start(alive=(etcd,))
    match binaries.controllers:
        case None:
            controllers: tuple[Process, ...] = ()
        case ControllerBinaries() as programs:
            controllers = (
                _start_controller_manager(
                    state,
                    programs.kube_controller_manager,
                    authority,
                    server,
                    [*gates, *arguments.controller_manager],
                ),
                _start_scheduler(
                    state,
                    programs.kube_scheduler,
                    authority,
                    server,
                    [*gates, *arguments.scheduler],
                ),
            )
        case unreachable:
            assert_never(unreachable)
    scheduler = f"https://127.0.0.1:{state.port(_SCHEDULER)}"
    return ControlPlane(
        etcd_url, server, scheduler, authority, kubeconfig, api_server, (etcd, *controllers)
    )


def _start_etcd(state: StateDirectory, program: Path, client: str) -> Process:
    peer = f"http://127.0.0.1:{state.port(_ETCD_PEER)}"
    return process.start(
        state,
        "etcd",
        [
            program,
            f"--data-dir={state.path / 'etcd'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",  # the data need not survive a crash of the machine
            "--log-level=warn",
        ],
    )


def _api_server_command(
    state: StateDirectory, program: Path, authority: Authority, more: list[str]
) -> list[str | Path]:
    serving = authority.issue(
        "kube-apiserver", user="kube-apiserver", address=state.api_service_address
    )
    to_kubelets = authority.issue(
        "kube-apiserver-kubelet-client", user="kube-apiserver", group="system:masters"
    )
    signing = authority.issue("service-accounts", user="service-accounts")
    return [
        program,
        f"--etcd-servers=http://127.0.0.1:{state.port(_ETCD)}",
        "--bind-address=127.0.0.1",
        f"--secure-port={state.port(_API_SERVER)}",
        "--endpoint-reconciler-type=none",  # the others reject a loopback address
        f"--service-cluster-ip-range={state.service_subnet}",
        f"--cert-dir={state.path / 'pki'}",
        f"--tls-cert-file={serving.certificate}",
        f"--tls-private-key-file={serving.key}",
        f"--client-ca-file={authority.ca.certificate}",
        f"--kubelet-certificate-authority={authority.ca.certificate}",
        f"--kubelet-client-certificate={to_kubelets.certificate}",
        f"--kubelet-client-key={to_kubelets.key}",
        "--kubelet-preferred-address-types=InternalIP",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={signing.certificate}",
        f"--service-account-signing-key-file={signing.key}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        *more,
    ]


def _start_controller_manager(
    state: StateDirectory, program: Path, authority: Authority, server: str, more: list[str]
) -> Process:
    name = "kube-controller-manager"
    signing = authority.issue("service-accounts", user="service-accounts")
    return process.start(
        state,
        name,
        [
            program,
            f"--kubeconfig={_kubeconfig(state, authority, name, server)}",
            # With the default of 20 requests per second, its start takes 7 s.
            "--kube-api-qps=1000",
            "--kube-api-burst=1000",
            "--bind-address=127.0.0.1",
            f"--secure-port={state.port(_CONTROLLER_MANAGER)}",
            f"--cert-dir={state.path / 'pki'}",
            "--leader-elect=false",
            "--use-service-account-credentials",
            f"--service-account-private-key-file={signing.key}",
            f"--root-ca-file={authority.ca.certificate}",
            *more,
        ],
    )


def _start_scheduler(
    state: StateDirectory, program: Path, authority: Authority, server: str, more: list[str]
) -> Process:
    name = "kube-scheduler"
    return process.start(
        state,
        name,
        [
            program,
            f"--kubeconfig={_kubeconfig(state, authority, name, server)}",
            "--bind-address=127.0.0.1",
            f"--secure-port={state.port(_SCHEDULER)}",
            f"--cert-dir={state.path / 'pki'}",
            f"--client-ca-file={authority.ca.certificate}",  # for those who read its metrics
            "--leader-elect=false",
            *more,
        ],
    )


def _kubeconfig(state: StateDirectory, authority: Authority, component: str, server: str) -> Path:
    return pki.write_kubeconfig(
        state.path / f"{component}.kubeconfig",
        server=server,
        ca=authority.ca.certificate,
        user=pki.client_certificate(authority.issue(component, user=f"system:{component}")),
    )


def _runtime_config(served: Mapping[str, bool]) -> list[str]:
    return [f"--runtime-config={_pairs(served)}"] if served else []


def _pairs(settings: Mapping[str, bool]) -> str:
    return ",".join(f"{name}={str(value).lower()}" for name, value in settings.items())
