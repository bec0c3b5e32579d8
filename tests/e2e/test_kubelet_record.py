"""The record of a real kubelet: it holds a claim from before its pod runs until it is unprepared.

Only what it says about claims in use matters: a claim that it does not hold, and that is gone from
the API, may be unprepared by the plugin itself.
"""

from kubelet_plugin.claims.kubelet_record import KubeletRecord
from kubelet_plugin.claims.kubelet_record_file import KubeletRecordFile
from simulation.kubernetes.node import Node
from tests.e2e.plugin import Plugin
from tests.e2e.workloads import RETRY_S, Workloads, gpu_config


def _record(node: Node) -> KubeletRecord:
    record = KubeletRecordFile(node.kubelet.root).read()
    assert isinstance(record, KubeletRecord)
    return record


def test_claim_is_held_while_its_pod_is_there(workloads: Workloads, node: Node) -> None:
    workloads.pod_with_own_claim("pod")
    workloads.wait_running("pod", timeout=RETRY_S)
    claim = workloads.claim_of("pod")["metadata"]

    held = _record(node).claims[claim["uid"]]
    assert (held.namespace, held.name) == (claim["namespace"], claim["name"])

    workloads.delete("pod")
    assert not _record(node).holds(claim["uid"])


def test_claim_is_held_while_its_prepare_fails(
    workloads: Workloads, plugin: Plugin, node: Node
) -> None:
    workloads.claim("claim", config=[gpu_config(kind="MigDeviceConfig")])
    workloads.pod("pod", "claim")
    workloads.wait_event("Pod", "pod", "FailedPrepareDynamicResources")
    assert plugin.prepared_claims() == set()

    assert _record(node).holds(workloads.get("resourceclaim", "claim")["metadata"]["uid"])


def test_claim_is_held_throughout_a_restart_of_the_kubelet(
    workloads: Workloads, plugin: Plugin, node: Node
) -> None:
    workloads.pod_with_own_claim("pod")
    workloads.wait_running("pod", timeout=RETRY_S)
    (uid,) = plugin.prepared_claims()

    node.kubelet.stop()
    try:
        assert _record(node).holds(uid)
    finally:
        node.kubelet.start()
    assert _record(node).holds(uid)

    workloads.delete("pod")
    assert not _record(node).holds(uid)
