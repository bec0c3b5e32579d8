"""The controller's metrics, as Prometheus reads them."""

from collections.abc import Iterator, Mapping

import pytest
from prometheus_client.parser import text_string_to_metric_families

from carina_dra.kube.errors import ApiOperation, TooManyRequests
from controller.engine.model.plan import Action
from controller.report.metrics import ControllerMetrics, CyclePhase, QueueFigures, Undone, Write

GPUS = "deviceClass gpu.carina.dev"


def labelled(metrics: ControllerMetrics) -> Iterator[tuple[str, Mapping[str, str], float]]:
    """The name, labels and value of every sample."""
    for family in text_string_to_metric_families(metrics.exposition().decode()):
        for sample in family.samples:
            yield sample.name, sample.labels, sample.value


def samples(metrics: ControllerMetrics) -> Mapping[tuple[str, ...], float]:
    """Every sample by its name and the values of its labels."""
    return {(name, *labels.values()): value for name, labels, value in labelled(metrics)}


def figures(allocated: int, *, pending_groups: int = 0) -> QueueFigures:
    return QueueFigures(
        allocated={GPUS: allocated},
        fair_share={GPUS: 16},
        pending={GPUS: 4, "cpu": 32_000},
        pending_groups=pending_groups,
    )


def test_a_queue_has_its_figures_by_resource() -> None:
    metrics = ControllerMetrics()
    metrics.queues({"vision": figures(8, pending_groups=3)})

    read = samples(metrics)
    assert read["carina_queue_allocated", "vision", GPUS] == 8
    assert read["carina_queue_fair_share", "vision", GPUS] == 16
    assert read["carina_queue_pending", "vision", GPUS] == 4
    assert read["carina_queue_pending", "vision", "cpu"] == 32_000
    assert read["carina_queue_pending_groups", "vision"] == 3


def test_a_queue_that_is_gone_leaves_no_series() -> None:
    metrics = ControllerMetrics()
    metrics.queues({"vision": figures(8), "speech": figures(2)})
    metrics.group_started("vision", 5)

    metrics.queues({"speech": figures(3)})
    metrics.group_started("speech", 5)

    read = samples(metrics)
    assert read["carina_queue_allocated", "speech", GPUS] == 3
    assert [name for name in read if "vision" in name] == []


def test_a_process_that_leads_no_more_has_no_figures_of_queues() -> None:
    metrics = ControllerMetrics()
    metrics.leading(leads=True)
    metrics.queues({"vision": figures(8)})
    assert samples(metrics)["carina_leading",] == 1

    metrics.leading(leads=False)

    read = samples(metrics)
    assert read["carina_leading",] == 0
    assert [name for name in read if "vision" in name] == []


@pytest.mark.parametrize(
    ("seconds", "bucket"),
    [(0.05, 0.1), (-3, 0.1), (59, 60), (6 * 86_400, 7 * 86_400)],
)
def test_waits_are_counted_by_queue(seconds: float, bucket: float) -> None:
    metrics = ControllerMetrics()
    metrics.group_started("vision", seconds)

    read = samples(metrics)
    assert read["carina_group_wait_seconds_count", "vision"] == 1
    at_most = {
        float(labels["le"]): count
        for name, labels, count in labelled(metrics)
        if name == "carina_group_wait_seconds_bucket"
    }
    assert at_most[bucket] == 1
    assert [count for bound, count in at_most.items() if bound < bucket and count] == []


def test_a_cycle_is_counted_with_the_time_of_its_phases() -> None:
    metrics = ControllerMetrics()
    metrics.cycle({CyclePhase.OBSERVE: 0.25, CyclePhase.DECIDE: 0.5})
    metrics.cycle({CyclePhase.OBSERVE: 0.25, CyclePhase.DECIDE: 0.5, CyclePhase.ACT: 1})

    read = samples(metrics)
    assert read["carina_cycles_total",] == 2
    assert read["carina_cycle_phase_duration_seconds_sum", "decide"] == 1
    assert read["carina_cycle_phase_duration_seconds_count", "act"] == 1


def test_evictions_and_undone_decisions_are_counted_from_zero() -> None:
    metrics = ControllerMetrics()
    before = samples(metrics)
    metrics.evicted(Action.RECLAIM)
    metrics.undone(Undone.TAKEN_BACK)

    after = samples(metrics)
    assert {name: after[name] - before[name] for name in before if after[name] != before[name]} == {
        ("carina_evictions_total", "reclaim"): 1,
        ("carina_decisions_undone_total", "taken_back"): 1,
    }


def test_writes_are_counted_by_kind_and_outcome() -> None:
    metrics = ControllerMetrics()
    for _ in range(2):
        with metrics.writing(Write.CLAIM_STATUS):
            pass
    with pytest.raises(TooManyRequests), metrics.writing(Write.EVICTION):
        raise TooManyRequests(ApiOperation("evict", "pods"), "a budget refuses it", retry_after=1)

    read = samples(metrics)
    assert read["carina_writes_total", "claim_status", "written"] == 2
    assert read["carina_writes_total", "eviction", "refused"] == 1


def test_the_age_of_watches_and_lost_events_are_those_of_the_scrape() -> None:
    metrics = ControllerMetrics()
    ages, dropped = {"pods": 1.5}, [0]
    metrics.follow_watches(lambda: ages)
    metrics.follow_events(lambda: dropped[0])
    assert samples(metrics)["carina_watch_age_seconds", "pods"] == 1.5

    ages["pods"], dropped[0] = 61.5, 7

    read = samples(metrics)
    assert read["carina_watch_age_seconds", "pods"] == 61.5
    assert read["carina_events_dropped",] == 7
