"""What the annotations of a Node say of the release of its devices."""

import pytest

from controller.engine.files.node import read_node
from controller.engine.model.node import NodeRelease

DRIVER = "gpu.example.com"


@pytest.mark.parametrize(
    ("annotations", "release"),
    [
        ({}, NodeRelease.NONE),
        ({"release": ""}, NodeRelease.QUEUES),
        ({"release": "driver 590", "release-evict": "all"}, NodeRelease.ALL),
        ({"release": "driver 590", "release-evict": "some"}, NodeRelease.QUEUES),
        ({"release-evict": "all"}, NodeRelease.NONE),
        ({"release-phase": "draining"}, NodeRelease.QUEUES),  # as GPU Operator's labels ask for it
        ({"release-phase": "draining", "release-evict": "all"}, NodeRelease.ALL),
        ({"release-phase": "released"}, NodeRelease.QUEUES),
        ({"release-phase": "restoring"}, NodeRelease.NONE),
    ],
)
def test_a_node_is_released_while_somebody_asks_for_it(
    annotations: dict[str, str], release: NodeRelease
) -> None:
    keys = {f"{DRIVER}/{name}": value for name, value in annotations.items()}
    metadata = {"name": "n", "annotations": keys}
    status = {"allocatable": {"cpu": "1", "memory": "1Gi"}}
    body = {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}
    node = read_node(body, driver=DRIVER)
    assert (node.release, node.unschedulable) == (release, release is not NodeRelease.NONE)
    assert read_node(body, driver="gpu.other.com").release is NodeRelease.NONE
