"""A Queue that names what does not exist, or promises more than there is, says so."""

from controller.api.condition import StatusCondition
from controller.api.queue import GroupCounts
from controller.engine.model.resource import Memory
from controller.report.queue_checks import QueueAccess
from controller.report.queue_status import queue_status
from tests.unit.controller.engine.scene import GIB, NOW, Scene


def conditions(
    scene: Scene, queue: str = "q", access: QueueAccess | None = None
) -> dict[str, StatusCondition]:
    status = queue_status(
        scene.state().occupancy, scene.plan(), queue, GroupCounts(), access=access or QueueAccess()
    )
    return {condition.type: condition for condition in status.conditions}


def references(scene: Scene, access: QueueAccess | None = None) -> StatusCondition:
    return conditions(scene, access=access)["ReferencesResolved"]


def quotas(scene: Scene, queue: str = "q") -> StatusCondition:
    return conditions(scene, queue)["QuotasCovered"]


def test_a_queue_without_faults_says_so() -> None:
    found = conditions(Scene().node("n", 4).queue("q", quota=4))
    assert {name: condition.holds for name, condition in found.items()} == {
        "Active": True,
        "ReferencesResolved": True,
        "QuotasCovered": True,
        "GivesBack": True,
    }
    assert found["ReferencesResolved"].message == "all that it names exists"
    assert found["QuotasCovered"].message == "there is what its quotas promise"


def test_a_device_class_that_does_not_exist_is_named() -> None:
    scene = Scene().node("n", 4).queue("q")
    scene.classes = ["gpus"]
    condition = references(scene)
    assert (condition.holds, condition.reason) == (False, "NotFound")
    assert condition.message.startswith("DeviceClass gpu does not exist: create it, or correct")
    assert "gpus" in condition.message


def test_of_many_namespaces_that_do_not_exist_some_are_named() -> None:
    access = QueueAccess(missing_namespaces=tuple(f"ns-{number}" for number in range(256)))
    condition = references(Scene().queue("q"), access)
    assert condition.message.startswith(
        "namespace ns-0 does not exist: create it, or remove it from spec.namespaces. namespace"
    )
    assert condition.message.endswith(". And 253 more")


def test_quotas_of_children_that_exceed_the_parents_are_said_of_the_parent() -> None:
    scene = Scene().node("n", 8).queue("q", quota=4).queue("a", "q", quota=3)
    scene.queue("b", "q", quota=2)
    condition = quotas(scene)
    assert (condition.holds, condition.reason) == (False, "ExceededBelow")
    assert condition.message == (
        "deviceClass gpu: the queues below it have a quota of 5 together, and it has 4: raise its "
        "quota, or lower theirs"
    )
    assert quotas(scene, "a").holds


def test_quotas_that_exceed_the_cluster_are_said_of_queues_without_a_parent() -> None:
    scene = Scene().node("n", 4).queue("q", quota=3).queue("other", quota=2)
    condition = quotas(scene)
    assert (condition.holds, condition.reason) == (False, "ExceedsCluster")
    assert condition.message == (
        "deviceClass gpu: the queues without a parent have a quota of 5 together, this one of 3, "
        "and the cluster has 4: lower the quotas, or add nodes"
    )


def test_amounts_are_written_as_quantities() -> None:
    scene = Scene().node("n").queue("q", quota=512 * GIB, resource=Memory())
    assert "have a quota of 512Gi together, this one of 512Gi, and the cluster has 256Gi" in (
        quotas(scene).message
    )


def test_a_queue_to_which_all_is_guaranteed_promises_no_amount() -> None:
    assert quotas(Scene().node("n", 4).queue("q", quota=None)).holds


def test_a_closed_queue_promises_nothing() -> None:
    scene = Scene().node("n", 4).queue("q", quota=9, deleted=NOW).queue("other", quota=4)
    assert quotas(scene).holds
    assert quotas(scene, "other").holds


def test_a_leaf_that_admits_nobody_takes_no_work() -> None:
    condition = conditions(Scene().queue("q"), access=QueueAccess(admits_nobody=True))["Active"]
    assert (condition.holds, condition.reason) == (False, "NoNamespaces")
    assert condition.message == (
        "no namespace may use the queue: write spec.namespaces, with selector: {} for all"
    )


def test_a_cycle_of_parents_is_called_one() -> None:
    condition = conditions(Scene().queue("q", "up").queue("up", "q"))["Active"]
    assert (condition.holds, condition.reason) == (False, "CutOff")
    assert condition.message == (
        "queue q takes no work: its parents form a cycle, which comes back to queue q; give one of "
        "the queues in the cycle another spec.parent"
    )


def test_a_parent_that_does_not_exist_is_named() -> None:
    condition = conditions(Scene().queue("q", "up").queue("up", "top"))["Active"]
    assert condition.message == (
        "queue q takes no work: queue top, which is above it, does not exist; create queue top, or "
        "give the queues below it another spec.parent"
    )


def test_a_queue_that_is_too_deep_says_so() -> None:
    scene = Scene().queue("q", "63").queue("0")
    for level in range(1, 64):
        scene.queue(str(level), str(level - 1))
    condition = conditions(scene)["Active"]
    assert condition.message == (
        "queue q takes no work: more than 63 queues are above it; give it, or a queue above it, "
        "another spec.parent"
    )
