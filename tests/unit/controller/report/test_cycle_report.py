"""What a cycle has written of groups and queues."""

from typing import Any

from carina_dra.kube.body import Body, ObjectKey
from controller.names import POD_GROUPS, QUEUES
from controller.report.cycle_report import CycleReport, ObjectVersion, Observed
from controller.report.group_events import GroupNotice
from controller.report.metrics import ControllerMetrics
from controller.report.notice import GroupDegraded, GroupRefused, GroupWaits
from controller.report.status_writer import StatusTarget
from tests.unit.controller.engine.scene import Scene, tainted

_FIRST = ObjectVersion("a", 1)


class Statuses:
    """A StatusWriter that keeps what is wanted."""

    def __init__(self) -> None:
        self.wanted: dict[StatusTarget, Body] = {}

    def want(self, target: StatusTarget, status: Body) -> None:
        self.wanted[target] = status


class Events:
    """GroupEvents that keeps what it was told."""

    def __init__(self) -> None:
        self.groups: dict[str, GroupNotice] = {}
        self.degraded: dict[str, GroupNotice] = {}

    def report_degraded(self, groups: dict[str, GroupNotice], *_: object) -> bool:
        self.degraded = groups
        return False

    def report(self, groups: dict[str, GroupNotice], *_: object) -> bool:
        self.groups = groups
        return False


class Cycles:
    """Reports one scene after the other."""

    def __init__(self) -> None:
        self.statuses, self.events = Statuses(), Events()
        writer: Any = self.statuses
        recorder: Any = self.events
        self.metrics = ControllerMetrics()
        self._report = CycleReport(writer, recorder, self.metrics, lambda _: ())

    def report(self, scene: Scene, observed: Observed) -> dict[StatusTarget, Body]:
        """What is wanted of objects that was not wanted before."""
        self.statuses.wanted = {}
        self._report.report(scene.state(), scene.plan(), observed, 0)
        return self.statuses.wanted


def report(scene: Scene, observed: Observed) -> tuple[dict[StatusTarget, Body], Events]:
    cycles = Cycles()
    return cycles.report(scene, observed), cycles.events


def group(key: str) -> StatusTarget:
    namespace, _, name = key.partition("/")
    return StatusTarget(POD_GROUPS, ObjectKey(namespace, name))


def full() -> Scene:
    return Scene().node("n", 2).queue("q", quota=2).runs("t/old", "n", gpus=2).waits("t/new")


def test_each_pod_group_has_its_status() -> None:
    observed = Observed(
        pod_groups={"t/old": _FIRST, "t/new": ObjectVersion("b", 4), "t/empty": _FIRST}
    )
    wanted, _ = report(full(), observed)
    phases = {target: status["phase"] for target, status in wanted.items()}
    assert phases == {
        group("t/old"): "Running",
        group("t/new"): "Pending",
        group("t/empty"): "Pending",
    }
    (condition,) = wanted[group("t/new")]["conditions"]
    assert (condition["reason"], condition["observedGeneration"]) == ("NoRoom", 4)


def test_a_group_that_is_no_object_has_events_only() -> None:
    wanted, events = report(full(), Observed())
    assert wanted == {}
    (notice,) = events.groups.values()
    assert isinstance(notice, GroupWaits)
    assert (notice.group, notice.word) == ("t/new", "NoRoom")


def test_a_degraded_group_has_a_condition_or_else_an_event() -> None:
    scene = tainted(full().runs("t/other", "n"))
    text = "pod old-0 on node n: device gpu.carina.dev/n/gpu-0 has the taint "
    wanted, events = report(scene, Observed(pod_groups={"t/old": _FIRST}))
    conditions = {each["type"]: each for each in wanted[group("t/old")]["conditions"]}
    assert conditions["Degraded"]["status"] == "True"
    assert conditions["Degraded"]["message"].startswith(text)
    assert events.degraded == {}
    wanted, events = report(scene, Observed())
    (notice,) = events.degraded.values()
    assert isinstance(notice, GroupDegraded)
    assert (wanted, notice.group) == ({}, "t/old")
    assert notice.text.startswith(text)


def test_a_group_that_starts_is_left_as_it_is() -> None:
    scene = Scene().node("n", 1).queue("q", quota=1).waits("t/new")
    wanted, events = report(scene, Observed(pod_groups={"t/new": _FIRST}))
    assert wanted == {}
    assert events.groups == {}


def test_a_refused_group_says_why() -> None:
    observed = Observed(pod_groups={"t/mixed": _FIRST}, refused={"t/mixed": "name one queue"})
    wanted, events = report(full(), observed)
    assert wanted[group("t/mixed")]["phase"] == "Refused"
    assert events.groups["t/mixed"] == GroupRefused("name one queue")


def test_each_queue_has_its_status() -> None:
    wanted, _ = report(full(), Observed(queues={"q": _FIRST}))
    status = wanted[StatusTarget(QUEUES, ObjectKey("", "q"))]
    assert status["groups"] == {"pending": 1, "running": 1}
    assert status["resources"][0]["allocated"] == 2


def test_only_groups_of_which_something_has_changed_are_reported_again() -> None:
    cycles, scene = Cycles(), full().waits("t/other")
    observed = Observed(pod_groups={"t/old": _FIRST, "t/new": _FIRST, "t/other": _FIRST})
    assert len(cycles.report(scene, observed)) == 3
    assert cycles.report(scene, observed) == {}
    assert list(cycles.report(scene.pod("t/new"), observed)) == [group("t/new")]


def test_a_group_that_was_made_anew_is_reported_again() -> None:
    cycles = Cycles()
    cycles.report(full(), Observed(pod_groups={"t/new": _FIRST}))
    anew = Observed(pod_groups={"t/new": ObjectVersion("b", 1)})
    assert list(cycles.report(full(), anew)) == [group("t/new")]


def test_a_group_is_reported_when_it_has_started() -> None:
    cycles, observed = Cycles(), Observed(pod_groups={"t/g": _FIRST})
    cycles.report(Scene().node("n").queue("q", quota=1).waits("t/g"), observed)
    assert cycles.report(Scene().node("n", 1).queue("q", quota=1).waits("t/g"), observed) == {}
    runs = Scene().node("n", 1).queue("q", quota=1).runs("t/g", "n")
    assert cycles.report(runs, observed)[group("t/g")]["phase"] == "Running"


def test_metrics_have_the_figures_of_the_queues_that_exist() -> None:
    cycles = Cycles()
    cycles.report(full(), Observed(queues={"q": _FIRST}))
    lines = cycles.metrics.exposition().decode().splitlines()
    labels = '{queue="q",resource="deviceClass gpu"}'
    assert f"carina_queue_allocated{labels} 2.0" in lines
    assert f"carina_queue_fair_share{labels} 2.0" in lines
    assert f"carina_queue_pending{labels} 1.0" in lines
    assert 'carina_queue_pending_groups{queue="q"} 1.0' in lines
    cycles.report(full(), Observed())
    assert b"carina_queue_allocated{" not in cycles.metrics.exposition()
