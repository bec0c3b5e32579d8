"""The status of a Queue, from the accounts of the state and the fair shares of a plan."""

from carina_dra.placement.cluster.gpu import GPU as WHOLE
from controller.api.queue import GroupCounts, QueueStatus
from controller.engine.model.group import PodSet
from controller.engine.model.pod import Evicting, PodNeeds
from controller.engine.model.resource import Gpus, Memory, Pods
from controller.report.queue_status import count_groups, queue_amounts, queue_status
from tests.unit.controller.engine.scene import GIB, GPU, Scene


def status_of(scene: Scene, queue: str) -> QueueStatus:
    state, plan = scene.state(), scene.plan()
    return queue_status(state.occupancy, plan, queue, count_groups(state).get(queue, GroupCounts()))


def tree() -> Scene:
    scene = Scene().node("n", 8).queue("company", quota=None)
    scene.queue("research", "company", quota=4).queue("product", "company", quota=4)
    return scene.runs("r", "n", "n", gpus=2, queue="research").runs("p", "n", queue="product")


def test_a_queue_has_what_its_groups_have_and_wait_for() -> None:
    scene = tree().waits("more", 2, gpus=2, queue="research")
    status = status_of(scene, "research")
    assert status.body()["resources"] == [
        {"deviceClass": "gpu", "allocated": 4, "fairShare": 7, "pending": 4}
    ]
    assert status.groups == GroupCounts(pending=1, running=1)


def test_a_queue_above_has_the_sums() -> None:
    scene = tree().waits("more", gpus=2, queue="research").waits("much", gpus=8, queue="product")
    status = status_of(scene, "company")
    assert status.body()["resources"] == [
        {"deviceClass": "gpu", "allocated": 5, "fairShare": 8, "pending": 10}
    ]
    assert status.groups == GroupCounts(pending=2, running=2)


def test_a_group_runs_once_its_minimum_has_a_place() -> None:
    scene = Scene().node("n", 8).queue("q", quota=8)
    scene.runs("elastic", "n", least=1).pod("elastic")
    scene.runs("broken", "n", least=2).pod("broken")
    assert status_of(scene, "q").groups == GroupCounts(pending=1, running=1)


def test_a_group_with_nothing_but_a_pod_that_does_not_end_does_not_run() -> None:
    scene = Scene().node("n", 8).queue("q", quota=8).group("g", root=PodSet("", 0))
    scene.pod("g", gpus=0, name="p", state=Evicting("n", stuck=True))
    assert status_of(scene, "q").groups == GroupCounts()


def test_amounts_are_written_as_quantities() -> None:
    scene = Scene().node("n").queue("q", quota=64 * GIB, resource=Memory())
    (resource,) = status_of(scene, "q").body()["resources"]
    assert resource == {"name": "memory", "allocated": "0", "fairShare": "0", "pending": "0"}


def test_amounts_of_gpus_are_numbers_of_them() -> None:
    one = PodNeeds(extended=(("nvidia.com/gpu", 1),))
    scene = Scene().node("n", extended={"nvidia.com/gpu": 2})
    scene.queue("q", quota=WHOLE * 3 // 2, resource=Gpus()).waits("g", 3, gpus=0, needs=one)
    (resource,) = status_of(scene, "q").body()["resources"]
    assert resource == {"gpus": {}, "allocated": 0, "fairShare": 2, "pending": 3}


def test_a_resource_that_only_other_queues_name_is_left_out() -> None:
    scene = Scene().node("n", 4).queue("q", quota=4).queue("other", quota=1, resource=Pods())
    idle = queue_amounts(scene.state().occupancy, scene.plan(), "q")
    scene.runs("g", "n")
    busy = queue_amounts(scene.state().occupancy, scene.plan(), "q")
    assert [one.resource for one in idle] == [GPU]
    assert [one.resource for one in busy] == [GPU, Pods()]


def test_a_leaf_takes_work() -> None:
    condition = status_of(tree(), "research").conditions[0]
    assert (condition.type, condition.holds, condition.reason) == ("Active", True, "TakesWork")


def test_a_queue_with_children_says_so() -> None:
    condition = status_of(tree(), "company").conditions[0]
    assert (condition.holds, condition.reason) == (True, "HasChildren")
    assert condition.message == "queues below it that take work: 2"


def test_a_queue_without_its_parent_is_not_active() -> None:
    status = status_of(Scene().queue("lost", "gone"), "lost")
    (condition,) = status.conditions
    assert (condition.holds, condition.reason) == (False, "CutOff")
    assert "; create queue gone, or give the queues below it another" in condition.message
    assert status.resources == ()
