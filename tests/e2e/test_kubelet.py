"""The plugin and the real kubelet through each other's restarts and failures.

| upstream (test/e2e_node/dra_test.go)           | here                                          |
|------------------------------------------------|-----------------------------------------------|
| register after kubelet restart                 | registers_after_the_kubelet_restarts          |
| register after plugin restart                  | registers_after_it_restarts, ..._was_killed   |
| recover after GetInfo failure                  | registers_after_it_did_not_answer             |
| recover after NotifyRegistrationStatus failure | registers_after_it_did_not_hear_that          |
| pod created while kubelet was down             | pod_made_while_the_kubelet_was_down           |
| Prepare not called for pod deleted then        | pod_deleted_while_the_kubelet_was_down        |
| runs after Prepare fails then succeeds         | pod_waits_while_prepare_is_refused            |
| stays Pending when Prepare times out           | pod_waits_while_prepare_times_out             |
| Prepare retried after kubelet restart          | prepare_is_tried_again                        |
| terminates after Unprepare fails then succeeds | pod_ends_once_unprepare_succeeds              |
| Unprepare retried after kubelet restart        | unprepare_is_tried_again                      |
| Unprepare called for deleted pod               | claim_of_a_deleted_pod, ..._deleted_by_force  |
| the same after kubelet restart                 | claim_of_a_pod_that_went                      |
| slices removed on kubelet startup              | starting_kubelet_removes_slices, slices_wiped |
| slices removed after unregistration            | slices_go_with_the_plugin                     |
| slices removed when it becomes unresponsive    | slices_of_a_killed_plugin                     |
| blocks new pod after force-delete              | new_pod_waits_for_the_gpu                     |
| rolling, failed update                         | rolling_update                                |
"""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from simulation.kubernetes.cluster import Cluster, KubectlError
from simulation.kubernetes.node import Node
from simulation.kubernetes.process import wait_for
from simulation.nvml.node import SimulatedNode
from tests.e2e.plugin import DRIVER, Plugin
from tests.e2e.registrar import first_word_refused
from tests.e2e.workloads import RETRY_S, Workloads, request

_BINDING = "clusterrolebinding/carina-kubelet-plugin"
_WIPE_S = 60.0
"""The kubelet waits 30 s for a plugin to come back before it removes its slices."""
_KUBELET_PATIENCE_S = 60.0
"""The kubelet waits 45 s for Prepare."""


@pytest.fixture
def plugin(kept_plugin: Plugin) -> Plugin:
    """The plugin, which runs; what it did in earlier tests is forgotten."""
    kept_plugin.begin_log()
    kept_plugin.be_ready()
    return kept_plugin


@pytest.fixture
def gpus(kept_plugin: Plugin) -> SimulatedNode:
    """The GPUs of the plugin."""
    return kept_plugin.gpus


def _slice_uids(node: Node) -> set[str]:
    uids = node.cluster.kubectl(
        *("get", "resourceslices", f"--field-selector=spec.nodeName={node.name}"),
        *("-o", "jsonpath={.items[*].metadata.uid}"),
    )
    return set(uids.split())


def _runs(workloads: Workloads, pod: str, timeout: float = RETRY_S) -> None:
    """Waits until the pod runs with a GPU; a kubelet that just started may not know it yet."""
    workloads.wait_running(pod, timeout=timeout)
    gpus = wait_for(f"{pod} to have its GPU", lambda: workloads.gpus(pod), retry_on=(KubectlError,))
    assert len(gpus) == 1


def _wait_until_logged(node: Node, *words: str, since: int = 0) -> None:
    """Waits for a line of the kubelet's log with all the words, after its first `since` bytes."""

    def logged() -> bool:
        lines = node.kubelet.log.read_bytes()[since:].decode(errors="replace").splitlines()
        return any(all(word in line for word in words) for line in lines)

    wait_for(f"the kubelet to log {words}", logged)


@contextmanager
def _kubelet_down(node: Node) -> Iterator[None]:
    node.kubelet.stop()
    try:
        yield
    finally:
        node.kubelet.start()


@contextmanager
def _claims_unreadable(cluster: Cluster) -> Iterator[None]:
    """The plugin's ServiceAccount may do nothing, and so cannot read a claim."""
    binding = cluster.kubectl("get", _BINDING, "-o", "json")
    cluster.kubectl("delete", _BINDING)
    try:
        yield
    finally:
        cluster.kubectl("apply", "-f", "-", stdin=binding)


@contextmanager
def _cannot_be_removed(file: Path) -> Iterator[None]:
    """Something is mounted on the file, so that even root cannot remove it."""
    subprocess.run(["mount", "--bind", file, file], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", file], check=True)


# --- registration ---


def test_registers_after_the_kubelet_restarts(workloads: Workloads, node: Node) -> None:
    node.kubelet.restart()

    workloads.pod_with_own_claim("pod")
    _runs(workloads, "pod")


def test_is_ready_only_while_the_kubelet_knows_it(plugin: Plugin, node: Node) -> None:
    with _kubelet_down(node):
        wait_for("the plugin to be unready", lambda: not plugin.is_ready())

    plugin.wait_until_ready()


def test_registers_after_it_restarts(workloads: Workloads, plugin: Plugin) -> None:
    plugin.stop()
    assert not plugin.registration_socket.exists()
    plugin.start()

    workloads.pod_with_own_claim("pod")
    _runs(workloads, "pod")


def test_registers_after_it_was_killed(workloads: Workloads, plugin: Plugin) -> None:
    plugin.kill()
    assert plugin.registration_socket.exists()
    plugin.start()

    workloads.pod_with_own_claim("pod")
    _runs(workloads, "pod")


def test_registers_after_it_did_not_answer(
    workloads: Workloads, plugin: Plugin, node: Node
) -> None:
    before = node.kubelet.log.stat().st_size
    plugin.freeze()
    try:
        node.kubelet.restart()
        _wait_until_logged(node, plugin.registration_socket.name, "eadline", since=before)
    finally:
        plugin.thaw()

    workloads.pod_with_own_claim("pod")
    _runs(workloads, "pod")


def test_registers_after_it_did_not_hear_that_it_was_registered(
    workloads: Workloads, plugin: Plugin, node: Node
) -> None:
    before = node.kubelet.log.stat().st_size
    with ExitStack() as cleanup:
        with _kubelet_down(node):
            plugin.stop()
            plugin.launch()
            cleanup.enter_context(first_word_refused(plugin.registration_socket))

        _wait_until_logged(node, "failed to send registration status", "not now", since=before)
        plugin.wait_until_ready()
        workloads.pod_with_own_claim("pod")
        _runs(workloads, "pod")


# --- a kubelet that is down ---


def test_pod_made_while_the_kubelet_was_down_starts(workloads: Workloads, node: Node) -> None:
    with _kubelet_down(node):
        workloads.pod_with_own_claim("pod")
        workloads.wait_scheduled("pod")

    _runs(workloads, "pod")


def test_pod_deleted_while_the_kubelet_was_down_is_not_prepared(
    workloads: Workloads, plugin: Plugin, node: Node
) -> None:
    with _kubelet_down(node):
        workloads.claim("of-deleted")
        workloads.pod("deleted", "of-deleted")
        workloads.wait_scheduled("deleted")
        workloads.force_delete("deleted")
        workloads.claim("of-later")
        workloads.pod("later", "of-later")

    _runs(workloads, "later")
    prepared = {call.claim for call in plugin.calls() if call.operation == "prepare"}
    assert prepared == {f"{workloads.namespace}/of-later"}


def test_pod_and_its_gpu_outlive_restarts_of_kubelet_and_plugin(
    workloads: Workloads, plugin: Plugin, node: Node
) -> None:
    workloads.pod_with_own_claim("pod")
    _runs(workloads, "pod")
    before = workloads.get("pod", "pod")["status"]["containerStatuses"][0]["containerID"]

    with _kubelet_down(node):
        plugin.stop()
        plugin.launch()
    plugin.wait_until_ready()

    _runs(workloads, "pod")
    after = workloads.get("pod", "pod")["status"]["containerStatuses"][0]
    assert (after["containerID"], after["restartCount"]) == (before, 0)


# --- prepare ---


def test_pod_waits_while_prepare_is_refused_and_then_starts(
    workloads: Workloads, plugin: Plugin
) -> None:
    workloads.claim("claim")
    with _claims_unreadable(workloads.cluster):
        workloads.pod("pod", "claim")
        said = workloads.wait_event("Pod", "pod", "FailedPrepareDynamicResources")
        assert "forbidden" in said
        assert workloads.get("pod", "pod")["status"]["phase"] == "Pending"
        assert plugin.prepared_claims() == set()

    _runs(workloads, "pod")


def test_prepare_is_tried_again_after_the_kubelet_restarts(
    workloads: Workloads, node: Node
) -> None:
    workloads.claim("claim")
    with _claims_unreadable(workloads.cluster):
        workloads.pod("pod", "claim")
        workloads.wait_event("Pod", "pod", "FailedPrepareDynamicResources")
        node.kubelet.stop()
    node.kubelet.start()

    _runs(workloads, "pod")


def test_pod_waits_while_prepare_times_out(workloads: Workloads, plugin: Plugin) -> None:
    plugin.freeze()
    try:
        workloads.pod_with_own_claim("pod")
        said = workloads.wait_event(
            "Pod", "pod", "FailedPrepareDynamicResources", _KUBELET_PATIENCE_S
        )
        assert "DeadlineExceeded" in said
        assert workloads.get("pod", "pod")["status"]["phase"] == "Pending"
    finally:
        plugin.thaw()

    _runs(workloads, "pod")


# --- unprepare ---


def test_claim_of_a_deleted_pod_is_unprepared(workloads: Workloads, plugin: Plugin) -> None:
    workloads.pod_with_own_claim("pod")
    _runs(workloads, "pod")
    assert len(plugin.prepared_claims()) == 1

    workloads.delete("pod")

    assert plugin.prepared_claims() == set()


def test_claim_of_a_pod_deleted_by_force_is_unprepared(
    workloads: Workloads, plugin: Plugin
) -> None:
    workloads.pod_with_own_claim("pod")
    _runs(workloads, "pod")

    workloads.force_delete("pod")

    wait_for("the claim to be unprepared", lambda: not plugin.prepared_claims())


def test_new_pod_waits_for_the_gpu_of_a_pod_deleted_by_force(
    workloads: Workloads, plugin: Plugin
) -> None:
    old, new = (f"{workloads.namespace}/{name}" for name in ("old", "new"))
    workloads.claim("old", request(allocationMode="All"))
    workloads.pod("old", "old")
    workloads.wait_running("old")
    (uid,) = plugin.prepared_claims()

    with _cannot_be_removed(plugin.node.cdi_folder / f"{DRIVER}-claim_{uid}.json"):
        workloads.force_delete("old")
        workloads.kubectl("delete", "resourceclaim", "old")
        workloads.claim("new")
        workloads.pod("new", "new")
        said = workloads.wait_event("Pod", "new", "FailedPrepareDynamicResources", RETRY_S)
        assert f"ResourceClaim {old}" in said
        assert f"ResourceClaim {new}" in said
        assert plugin.prepared_claims() == {uid}

    _runs(workloads, "new", timeout=2 * RETRY_S)
    done = [(call.operation, call.claim) for call in plugin.calls() if not call.failed]
    assert done.index(("unprepare", old)) < done.index(("prepare", new))


def test_claim_of_a_pod_that_went_while_the_kubelet_was_down_is_unprepared(
    workloads: Workloads, plugin: Plugin, node: Node
) -> None:
    workloads.pod_with_own_claim("pod")
    _runs(workloads, "pod")

    with _kubelet_down(node):
        workloads.force_delete("pod")

    wait_for(
        "the claim to be unprepared", lambda: not plugin.prepared_claims(), timeout=2 * RETRY_S
    )


def test_pod_ends_once_unprepare_succeeds(workloads: Workloads, plugin: Plugin) -> None:
    workloads.claim("claim")
    workloads.pod("pod", "claim")
    _runs(workloads, "pod")
    (uid,) = plugin.prepared_claims()

    with _cannot_be_removed(plugin.node.cdi_folder / f"{DRIVER}-claim_{uid}.json"):
        workloads.begin_delete("pod")
        said = workloads.wait_event("ResourceClaim", "claim", "UnprepareFailed", RETRY_S)
        assert "cannot be removed" in said
        assert workloads.get("pod", "pod")["metadata"]["deletionTimestamp"]

    workloads.wait_gone("pod", timeout=RETRY_S)
    assert plugin.prepared_claims() == set()


def test_pod_ends_once_the_plugin_is_back(workloads: Workloads, plugin: Plugin) -> None:
    workloads.pod_with_own_claim("pod")
    _runs(workloads, "pod")
    uid = workloads.get("pod", "pod")["metadata"]["uid"]
    plugin.stop()

    workloads.begin_delete("pod")
    _wait_until_unprepare_failed(plugin.node, uid)
    assert plugin.prepared_claims()
    plugin.start()

    workloads.wait_gone("pod", timeout=RETRY_S)
    assert plugin.prepared_claims() == set()


def test_unprepare_is_tried_again_after_the_kubelet_restarts(
    workloads: Workloads, plugin: Plugin, node: Node
) -> None:
    workloads.pod_with_own_claim("pod")
    _runs(workloads, "pod")
    uid = workloads.get("pod", "pod")["metadata"]["uid"]
    plugin.stop()
    workloads.begin_delete("pod")
    _wait_until_unprepare_failed(node, uid)

    with _kubelet_down(node):
        plugin.launch()

    workloads.wait_gone("pod", timeout=RETRY_S)
    assert plugin.prepared_claims() == set()


def _wait_until_unprepare_failed(node: Node, pod_uid: str) -> None:
    _wait_until_logged(node, pod_uid, "is not registered")


# --- slices ---


def test_slices_wiped_by_a_starting_kubelet_come_back(plugin: Plugin, node: Node) -> None:
    plugin.wait_until_ready()
    before = _slice_uids(node)

    node.kubelet.restart()

    wait_for(
        "slices in place of the wiped ones",
        lambda: (now := _slice_uids(node)) and len(now) == len(before) and not now & before,
        timeout=10.0,
    )


def test_slices_go_with_the_plugin(plugin: Plugin, node: Node) -> None:
    assert _slice_uids(node)

    plugin.stop()

    wait_for("the slices to go", lambda: not _slice_uids(node), timeout=_WIPE_S)


def test_slices_of_a_killed_plugin_go_and_come_back_with_the_next(
    workloads: Workloads, plugin: Plugin, node: Node
) -> None:
    assert _slice_uids(node)

    plugin.kill()

    wait_for("the slices to go", lambda: not _slice_uids(node), timeout=_WIPE_S)
    assert plugin.registration_socket.exists()
    plugin.start()
    workloads.pod_with_own_claim("pod")
    _runs(workloads, "pod")


def test_starting_kubelet_removes_slices_of_a_plugin_that_is_not_there(
    plugin: Plugin, node: Node
) -> None:
    plugin.stop()
    assert _slice_uids(node)

    node.kubelet.restart()

    wait_for("the slices to go", lambda: not _slice_uids(node), timeout=10.0)


# --- rolling update ---


def test_pods_start_and_end_throughout_a_rolling_update(
    workloads: Workloads, plugin: Plugin, new_plugin: Callable[[str], Plugin]
) -> None:
    workloads.pod_with_own_claim("before")
    _runs(workloads, "before")

    new = new_plugin("new")
    new.start()
    workloads.pod_with_own_claim("meanwhile")
    _runs(workloads, "meanwhile")
    plugin.stop()
    workloads.pod_with_own_claim("after")
    _runs(workloads, "after")

    assert "after" in " ".join(call.claim for call in new.calls())
    for pod in ("before", "meanwhile", "after"):
        workloads.delete(pod)
    assert new.prepared_claims() == set()


def test_failed_rolling_update_leaves_the_old_plugin_in_charge(
    workloads: Workloads, new_plugin: Callable[[str], Plugin]
) -> None:
    new = new_plugin("new")
    new.start()
    new.kill()

    workloads.pod_with_own_claim("pod")
    _runs(workloads, "pod")
