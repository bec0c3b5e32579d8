"""Partitions that NVIDIA's DRA driver made before Carina took its place, on a simulated node."""

import pynvml

from kubelet_plugin.devices.publish_settings import PublishSettings
from kubelet_plugin.inventory.mig import MigPlacement, MigSite
from kubelet_plugin.nvml.mig_instance import destroy_instance
from tests.fakes.mig_node import DRIVER, MigNode
from tests.integration.mig.test_partitions import ONE_G, OTHER_ONE_G, admin_makes
from tests.samples.nvidia_checkpoint import checkpoint, entry, result

SITE = MigSite(19, MigPlacement(6, 1))
"""Of ONE_G."""


def made_by_nvidias_driver(node: MigNode, claim: str) -> None:
    """NVIDIA's driver has prepared a claim with ONE_G; it was removed while a pod runs."""
    pynvml.nvmlGpuInstanceCreateComputeInstance(admin_makes(node, 0, 19, 6, 1), 0)
    node.allocations[claim] = (ONE_G,)
    (node.folder / "cdi").mkdir(parents=True, exist_ok=True)
    (node.folder / "cdi" / f"k8s.{DRIVER}-claim_{claim}.yaml").touch()
    claims = {claim: entry(result(ONE_G, DRIVER))}
    boot_id = node.simulated.state.boot_id
    (node.folder / "checkpoint.json").write_bytes(checkpoint(claims, boot_id=boot_id))


def test_the_instance_outlives_repair_and_unprepare_and_is_reported(node: MigNode) -> None:
    made_by_nvidias_driver(node, "train")

    node.repair()
    assert len(node.instances(0)) == 1
    node.unprepare("train")
    node.repair()

    assert len(node.instances(0)) == 1
    assert node.reporter.partitions_left == [("train", (ONE_G,))]
    assert "uuid" in node.devices()[ONE_G].published(PublishSettings(DRIVER)).attributes


def test_a_partition_beside_it_is_made_and_removed(node: MigNode) -> None:
    made_by_nvidias_driver(node, "train")

    node.prepare("other", OTHER_ONE_G)
    assert len(node.instances(0)) == 2
    node.unprepare("other")

    assert [instance.start for instance in node.instances(0)] == [6]


def test_after_unprepare_the_next_claim_gets_the_instance_and_leaves_it(node: MigNode) -> None:
    made_by_nvidias_driver(node, "train")
    node.unprepare("train")

    assert node.prepare("next", ONE_G)
    node.unprepare("next")

    assert len(node.instances(0)) == 1


def test_an_instance_at_the_site_of_one_that_carina_made_before_is_nvidias(node: MigNode) -> None:
    """NVIDIA's driver came back without a drain, destroyed Carina's, made its own, and went."""
    node.prepare("before", ONE_G)
    destroy_instance(node.handle(0), SITE)
    made_by_nvidias_driver(node, "train")

    node.unprepare("before")
    node.repair()

    assert len(node.instances(0)) == 1
    assert all(ONE_G not in made for made in node.recorded().values())
    node.unprepare("train")
    node.repair()
    assert len(node.instances(0)) == 1
    assert node.reporter.partitions_left == [("train", (ONE_G,))]


def test_what_both_drivers_prepared_is_left_and_reported(node: MigNode) -> None:
    node.prepare("train", ONE_G)
    destroy_instance(node.handle(0), SITE)
    made_by_nvidias_driver(node, "train")

    node.unprepare("train")
    node.repair()

    assert len(node.instances(0)) == 1
    assert node.reporter.partitions_left == [("train", (ONE_G,))]
