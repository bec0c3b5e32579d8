"""What jobs do in virtual time, with an engine that starts what fits."""

from dataclasses import replace
from functools import partial
from typing import Any

from controller.engine.decide.cycle import Engine
from controller.engine.model.plan import Action, Eviction, Plan
from controller.engine.model.pod import Placed
from controller.engine.simulate.record import JobRecord, NodeLeft, PodOutcome, PodsEvicted, Record
from controller.engine.simulate.simulator import Decider, simulate
from controller.engine.simulate.trace import Trace
from controller.engine.state.state import State
from tests.unit.controller.engine.simulate.scenarios import trace
from tests.unit.controller.engine.simulate.stand_in import FIRST_FIT, first_fit


def job_of(record: Record, name: str) -> JobRecord:
    (found,) = (job for job in record.jobs if job.job == f"q/{name}")
    return found


def evicting_at(at: float, *pods: str) -> Decider:
    """First fit, which evicts pods at a time once."""

    def decide(state: State) -> Plan:
        plan = first_fit(state)
        evictions = []
        for key in pods if state.now >= at and not done else ():
            pod = state.occupancy.pods[key]
            if isinstance(pod.state, Placed):
                evictions.append(Eviction(key, pod.state.node, Action.RECLAIM, "q/other", 30))
        done.extend(evictions)
        return replace(plan, evictions=tuple(evictions), wake=at if state.now < at else None)

    done: list[Eviction] = []
    return lambda state: partial(decide, state)


def run(*jobs: dict[str, Any], engine: Decider = FIRST_FIT, **fields: Any) -> Record:
    return simulate(trace(*jobs, **fields), engine)


def test_a_job_runs_from_its_arrival_for_its_duration() -> None:
    job = job_of(run({"arrival": "10s", "duration": "1m", "gpus": 1}), "j0")
    assert (job.arrival, job.started, job.ended) == (10, 10, 70)
    assert job.waited(100) == 0


def test_a_job_waits_until_another_ends() -> None:
    record = run({"duration": "1m", "gpus": 2, "pods": 2}, {"duration": "1m", "gpus": 2})
    assert job_of(record, "j1").started == 60
    assert record.end == 120


def test_pods_get_gpus_by_their_limits() -> None:
    limits = {"nvidia.com/gpu": 2}
    jobs = ({"duration": "1m", "limits": limits, "pods": 2}, {"duration": "1m", "limits": limits})
    record = run(*jobs, engine=lambda state: Engine(state).decide)
    assert len(job_of(record, "j0").runs[0].devices) == 2
    assert job_of(record, "j1").started == 60


def test_a_gang_starts_at_once() -> None:
    record = run({"duration": "1m", "gpus": 2}, {"duration": "1m", "gpus": 2, "pods": 2})
    assert {run.started for run in job_of(record, "j1").runs} == {60}


def test_cycles_keep_their_period() -> None:
    jobs = [{"arrival": f"{at}s", "duration": "1h", "gpus": 1} for at in (0, 0.1, 0.2)]
    record = run(*jobs, period="10s")
    assert [job.started for job in record.jobs] == [0, 10, 10]


def test_an_evicted_job_holds_its_devices_for_the_grace_and_begins_again() -> None:
    engine = evicting_at(30, "q/j0-0")
    job = job_of(run({"duration": "1m", "gpus": 1}, engine=engine, grace="20s"), "j0")
    first, second = job.runs
    assert (first.started, first.ended, first.outcome) == (0, 50, PodOutcome.EVICTED)
    assert (second.started, job.ended) == (60, 120)
    assert (job.evictions, job.lost) == (1, 30)


def test_an_evicted_pod_is_replaced_by_another_after_a_while() -> None:
    engine = evicting_at(30, "q/j0-0")
    fields = {"grace": "20s", "replacedAfter": "15s"}
    job = job_of(run({"duration": "1m", "gpus": 1}, engine=engine, **fields), "j0")
    first, second = job.runs
    assert second.started == 65
    assert second.pod != first.pod


def test_a_job_with_checkpoints_goes_on_where_it_was() -> None:
    engine = evicting_at(30, "q/j0-0")
    job = job_of(
        run({"duration": "1m", "gpus": 1, "checkpoints": True}, engine=engine, grace="20s"), "j0"
    )
    assert (job.ended, job.lost) == (90, 0)


def test_a_gang_that_loses_a_pod_stops_until_it_is_back() -> None:
    engine = evicting_at(30, "q/j0-1")
    job = job_of(
        run(
            {"duration": "1m", "gpus": 2, "pods": 2, "checkpoints": True},
            engine=engine,
            grace="20s",
        ),
        "j0",
    )
    assert job.ended == 90


def test_an_elastic_job_works_slower_with_fewer_pods() -> None:
    engine = evicting_at(30, "q/j0-1")
    shape = {"duration": "1m", "gpus": 2, "pods": 2, "minPods": 1}
    job = job_of(run(shape, engine=engine, grace="10s"), "j0")
    assert (job.ended, job.lost) == (70, 0)


def test_the_eviction_is_recorded_with_its_reason() -> None:
    record = run({"duration": "1m", "gpus": 1}, engine=evicting_at(30, "q/j0-0"))
    (evicted,) = (each for each in record.happenings if isinstance(each, PodsEvicted))
    assert evicted == PodsEvicted(30, "q/j0", Action.RECLAIM, "q/other", {"node-0": 1})


def test_a_node_that_goes_takes_its_pods_with_it() -> None:
    record = run(
        {"duration": "1m", "gpus": 2, "pods": 2},
        events=[{"at": "30s", "gone": ["node-1"]}, {"at": "50s", "added": ["node-1"]}],
    )
    job = job_of(record, "j0")
    assert NodeLeft(30, "node-1", ("q/j0",)) in record.happenings
    assert (job.ended, job.lost) == (110, 30)
    assert [run.outcome for run in job.runs if run.node == "node-1"] == [
        PodOutcome.NODE_GONE,
        PodOutcome.ENDED,
    ]


def test_a_node_that_is_added_later_is_not_there_before() -> None:
    record = run(
        {"duration": "1m", "gpus": 2, "pods": 2}, events=[{"at": "30s", "added": ["node-1"]}]
    )
    assert job_of(record, "j0").started == 30
    assert [sample.gpus for sample in record.samples][:2] == [2, 4]


def test_a_job_that_cannot_start_says_why() -> None:
    job = job_of(run({"duration": "1m", "gpus": 3}), "j0")
    assert job.waits_for == ("pod q/j0-0 has no place on 2 nodes",)


def test_it_ends_at_until_if_it_is_given() -> None:
    record = run({"gpus": 1}, {"arrival": "2h", "gpus": 1}, until="1h")
    assert record.end == 3600
    assert [job.job for job in record.jobs] == ["q/j0"]


def test_a_share_counts_as_its_part_of_the_memory() -> None:
    share = {"deviceClass": "share.gpu.carina.dev", "capacity": {"memory": "20Gi"}}
    mig = {"deviceClass": "mig.gpu.carina.dev", "selectors": [MIG]}
    nodes = [
        {
            "name": "node",
            "cpu": 8,
            "memory": "64Gi",
            "gpus": 2,
            "gpuMemory": "80Gi",
            "devices": ["gpu", "mig", "share"],
        }
    ]
    record = run({"devices": [share]}, {"devices": [mig]}, nodes=nodes, until="1m")
    assert record.samples[-1].in_use == {"q": 0.25 + 0.5}


MIG = "device.attributes['gpu.carina.dev'].profile == '3g.40gb'"


def test_the_trace_decides_alone_what_happens() -> None:
    def outcome() -> Record:
        return simulate(generated(), FIRST_FIT)

    assert outcome() == outcome()


def generated() -> Trace:
    return trace(
        generators=[
            {
                "name": "g",
                "queue": "q",
                "arrivals": {"perHour": 30},
                "duration": {"logNormal": {"median": "5m"}},
                "sizes": [{"weight": 3, "gpus": 1}, {"gpus": 2, "pods": 2}],
            }
        ],
        until="3h",
        seed=5,
    )
