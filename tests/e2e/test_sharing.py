"""carina-sharing beside a real kubelet: the processes of its containers are those of its pods."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from carina_dra.sharing.message import Reference, WantedShare
from simulation.kubernetes import reaper
from simulation.kubernetes.cluster import Cluster
from simulation.kubernetes.node import Node
from simulation.kubernetes.process import wait_for
from tests.e2e.workloads import Object, Workloads, container
from tests.integration.sharing.site import MIB, Site, site

_SMALL = {"cpu": "10m", "memory": "32Mi"}
_CLASSES: dict[str, Object] = {
    "Guaranteed": {"requests": _SMALL, "limits": _SMALL},
    "Burstable": {"requests": _SMALL},
    "BestEffort": {},
}
_NAMESPACES: dict[str, Object] = {
    "own": {},
    "shared": {"shareProcessNamespace": True},
    "hosts": {"hostPID": True},
}
_FIRST_SECONDS = 4_000_001


@pytest.fixture
def watchdog(node: Node) -> Iterator[Site]:
    """The process, on the host."""
    with site(f"/{reaper.cgroup_name(node.cluster.state.path)}/{node.name}/kubepods") as made:
        made.start("--watchdog", "kill")
        yield made


@pytest.fixture
def pods(cluster: Cluster) -> Iterator[Workloads]:
    """A namespace, whose pods are deleted after the test."""
    own = Workloads(cluster, cluster.create_namespace("sharing"))
    yield own
    own.delete_all()


def test_in_all_classes_and_pid_namespaces_pods_are_charged_and_lose_their_own_processes(
    watchdog: Site, pods: Workloads
) -> None:
    """Every second pod comes to use too much, and then the others do."""
    kinds = [(qos, namespace) for qos in _CLASSES for namespace in _NAMESPACES]
    names = [f"{qos}-{namespace}".lower() for qos, namespace in kinds]
    for number, (name, (qos, namespace)) in enumerate(zip(names, kinds, strict=True)):
        _run(pods, name, _FIRST_SECONDS + number, _CLASSES[qos], _NAMESPACES[namespace])
    pods.wait_running(*names)
    bodies = [pods.get("pod", name) for name in names]
    assert [body["status"]["qosClass"] for body in bodies] == [qos for qos, _ in kinds]

    pids = [
        wait_for("its process", partial(pid_of, _FIRST_SECONDS + number))
        for number in range(len(names))
    ]
    for number, pid in enumerate(pids):
        watchdog.gpus.run_process(0, pid, memory=(100 + number) * MIB)
    with watchdog.connected() as plugin:
        plugin.want(*(_share(watchdog, body) for body in bodies))
        report = plugin.report(lambda report: report.uses)

        found = {pod.pod.name: pod.memory_mib for use in report.uses for pod in use.pods}
        assert found == {name: 100 + number for number, name in enumerate(names)}
        assert report.strangers == ()

        for greedy, modest in (((0, 2, 4, 6, 8), (1, 3, 5, 7)), ((1, 3, 5, 7), ())):
            for number in greedy:
                watchdog.gpus.run_process(0, pids[number], memory=5000 * MIB)
            for number in greedy:
                wait_for("the end of its process", partial(_has_ended, _FIRST_SECONDS + number))
            assert [pid_of(_FIRST_SECONDS + number) for number in modest] == [
                pids[number] for number in modest
            ]
        report = plugin.report(lambda report: sum(use.ended for use in report.uses) == len(names))

    ended = {use.last_ended.pod.name: use.last_ended for use in report.uses if use.last_ended}
    assert {name: ended[name].container_id for name in names} == {
        body["metadata"]["name"]: body["status"]["containerStatuses"][0]["containerID"][-64:]
        for body in bodies
    }
    assert {(process.memory_mib, process.why) for process in ended.values()} == {(5000, "memory")}


def _run(pods: Workloads, name: str, seconds: int, resources: Object, spec: Object) -> None:
    """Runs a pod with a process that its command line tells from all others on this machine."""
    main = container("main", command=f"trap 'exit 0' TERM; sleep {seconds} & wait")
    main["resources"] = resources
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": pods.namespace, "name": name},
        "spec": {"restartPolicy": "Never", "containers": [main], **spec},
    }
    pods.kubectl("apply", "-f", "-", stdin=json.dumps(body))


def pid_of(seconds: int) -> int | None:
    """The process that sleeps so long, as this machine names it."""
    wanted = f"sleep\0{seconds}\0".encode()
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdecimal() and (process / "cmdline").read_bytes() == wanted:
                return int(process.name)
        except OSError:  # it has ended
            continue
    return None


def _has_ended(seconds: int) -> bool:
    return pid_of(seconds) is None


def _share(watchdog: Site, pod: Object) -> WantedShare:
    metadata = pod["metadata"]
    own = Reference(namespace=metadata["namespace"], name=metadata["name"], uid=metadata["uid"])
    return WantedShare(claim=own, gpu=watchdog.uuid(0), memory_mib=1000, cores=10, pods=(own,))
