"""What follows from a snapshot."""

from dataclasses import replace
from pathlib import Path

from controller.engine.decide.cycle import Engine
from controller.engine.files.file import read_snapshot
from controller.engine.model.pod import Evicting, Pod
from controller.engine.model.snapshot import Snapshot
from controller.engine.simulate.record import JobRecord, Record
from controller.engine.simulate.replay import replay
from controller.engine.simulate.simulator import simulate

_FILE = Path(__file__).parents[5] / "deploy" / "scenarios" / "waiting-group.yaml"
_HOUR = 3600


def snapshot(run_time: float | None) -> Snapshot:
    """The shipped one, in which vision/label has run for an hour; both groups run for so long."""
    read = read_snapshot(_FILE.name, _FILE.read_bytes())
    groups = tuple(replace(group, run_time=run_time) for group in read.groups)
    return replace(read, groups=groups)


def run(of: Snapshot) -> tuple[Record, JobRecord, JobRecord]:
    record = simulate(replay("s", of), lambda state: Engine(state).decide)
    label, train = record.jobs
    return record, label, train


def test_a_group_ends_when_it_has_run_for_as_long_as_it_says() -> None:
    _, label, train = run(snapshot(run_time=3 * _HOUR))
    now = snapshot(None).now
    assert label.ended == now + 2 * _HOUR
    assert (train.started, train.ended) == (now + 2 * _HOUR, now + 5 * _HOUR)


def test_a_group_that_says_nothing_does_not_end() -> None:
    record, label, train = run(snapshot(run_time=None))
    assert record.end == record.start
    assert (label.ended, train.started) == (None, None)
    assert train.waits
    assert not label.waits


def test_a_pod_that_is_being_evicted_holds_its_devices_for_the_grace() -> None:
    def evicted(pod: Pod) -> Pod:
        return replace(pod, state=Evicting("node-1")) if pod.group == "vision/label" else pod

    of = snapshot(run_time=3 * _HOUR)
    _, label, _ = run(replace(of, pods=tuple(map(evicted, of.pods))))
    assert label.runs[0].ended == of.now + 30


def test_a_group_that_asks_by_an_extended_resource_runs_like_one_with_claims() -> None:
    of = snapshot(run_time=3 * _HOUR)
    name = "nvidia.com/gpu"

    def named(pod: Pod) -> Pod:
        if pod.group != "vision/train":
            return pod
        needs = replace(pod.needs, mapped=((name, 1),))
        return replace(pod, needs=needs, planned=tuple((name, claim) for claim in pod.claims))

    with_names = replace(of, pods=tuple(map(named, of.pods)))
    assert with_names != of
    assert run(with_names)[2] == run(of)[2]


def test_the_devices_of_running_pods_are_in_use_from_the_start() -> None:
    record, _, _ = run(snapshot(run_time=None))
    assert record.samples[0].in_use == {"vision": 2}
