"""The node itself: it is Ready and runs containers."""

import json

from tests.kubernetes.node import Node


def test_node_is_ready_and_takes_pods(node: Node) -> None:
    seen = json.loads(node.cluster.kubectl("get", "node", node.name, "-o", "json"))

    conditions = {each["type"]: each["status"] for each in seen["status"]["conditions"]}
    assert conditions["Ready"] == "True"
    assert "taints" not in seen["spec"]
    assert {"type": "InternalIP", "address": "127.0.0.1"} in seen["status"]["addresses"]


def test_pod_runs_and_its_log_can_be_read(node: Node) -> None:
    kubectl = node.cluster.kubectl
    kubectl("create", "namespace", "plain-pod")
    kubectl("wait", "--for=create", "serviceaccount/default", "-n", "plain-pod")
    kubectl(
        *("run", "hello", "-n", "plain-pod", "--image=busybox:1", "--restart=Never"),
        *("--command", "--", "echo", "hello from a container"),
    )

    kubectl("wait", "-n", "plain-pod", "pod/hello", "--for=jsonpath={.status.phase}=Succeeded")

    assert kubectl("logs", "-n", "plain-pod", "hello") == "hello from a container\n"


def test_restarted_kubelet_serves_the_same_node(node: Node) -> None:
    kubectl = node.cluster.kubectl
    before = json.loads(kubectl("get", "node", node.name, "-o", "json"))["metadata"]["uid"]

    node.kubelet.restart()

    assert json.loads(kubectl("get", "node", node.name, "-o", "json"))["metadata"]["uid"] == before
