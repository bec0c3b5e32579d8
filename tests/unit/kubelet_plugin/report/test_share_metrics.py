"""Metrics of shares, as Prometheus reads them."""

from prometheus_client import CollectorRegistry, generate_latest

from carina_dra.sharing.message import SharingReport, Strangers, Unwatched
from kubelet_plugin.claim_status.live_claims import ClaimsNow
from kubelet_plugin.report.share_metrics import ShareMetrics
from kubelet_plugin.sharing.wanted import PodsOfClaims
from tests.samples.shares import GPUS, now, pod, report, shared, use


def scrape(
    state: ClaimsNow, seen: SharingReport | None = None, pods: PodsOfClaims | None = None
) -> list[str]:
    registry = CollectorRegistry()
    registry.register(ShareMetrics(lambda: state, lambda: seen, lambda: pods or {}))
    return generate_latest(registry).decode().splitlines()


def of(lines: list[str], metric: str, *labels: str) -> list[str]:
    """The values of the series of a metric with these labels."""
    return [
        line.rpartition(" ")[2]
        for line in lines
        if line.startswith(f"{metric}{{") and all(label in line for label in labels)
    ]


def test_what_a_claim_is_given_is_known_without_carina_sharing() -> None:
    lines = scrape(now(shared("train")))

    train = f'UUID="{GPUS[0]}"', ',namespace="team"', 'dra_claim_name="train"', 'pod=""'
    (given,) = of(lines, "carina_share_memory_given_bytes", *train)
    assert float(given) == 10 * 2**30
    assert of(lines, "carina_share_cores_given_ratio", *train) == ["0.4"]
    assert of(lines, "carina_share_info", *train, 'memory_enforcement="none"') == ["1.0"]
    assert not of(lines, "carina_share_memory_used_bytes")


def test_a_pod_has_what_its_processes_use_with_the_labels_of_its_only_claim() -> None:
    seen = report(use(("train",), ("train-0", 512, 25)))
    lines = scrape(now(shared("train")), seen, {"train": (pod("train-0"),)})

    labels = 'namespace="team"', 'pod="train-0"', 'dra_claim_name="train"', f'UUID="{GPUS[0]}"'
    assert of(lines, "carina_share_memory_used_bytes", *labels) == ["5.36870912e+08"]
    assert of(lines, "carina_share_sm_utilization_ratio", *labels) == ["0.25"]
    assert of(lines, "carina_share_processes", *labels) == ["1.0"]
    assert of(lines, "carina_share_memory_exceeded", *labels) == ["0.0"]
    assert of(lines, "carina_share_pod_info", *labels) == ["1.0"]


def test_what_the_driver_does_not_say_is_missing() -> None:
    lines = scrape(now(shared("train")), report(use(("train",), ("train-0", 512, None))))
    assert not of(lines, "carina_share_sm_utilization_ratio")
    assert not of(lines, "carina_share_idle_since_timestamp_seconds")


def test_a_pod_with_two_claims_on_a_gpu_is_counted_once() -> None:
    seen = report(use(("a", "b"), ("both", 512, 1)))
    pods = {"a": (pod("both"),), "b": (pod("both"),)}
    lines = scrape(now(shared("a"), shared("b")), seen, pods)

    both = 'pod="both"', ',namespace="team"', 'dra_claim_namespace=""'
    assert len(of(lines, "carina_share_memory_used_bytes", *both)) == 1
    assert of(lines, "carina_share_memory_used_bytes", 'dra_claim_name=""') == ["5.36870912e+08"]
    assert len(of(lines, "carina_share_memory_given_bytes", 'pod="both"')) == 2
    assert len(of(lines, "carina_share_pod_info")) == 2


def test_a_pod_that_was_made_again_has_the_series_of_the_one_before() -> None:
    seen = report(use(("train",), ("train-0", 512, 25), ("train-0", 256, 5)))
    again = pod("train-0").model_copy(update={"uid": "another"})
    lines = scrape(now(shared("train")), seen, {"train": (pod("train-0"), again)})

    assert of(lines, "carina_share_memory_used_bytes") == [f"{768 * 2**20:.8e}"]
    assert of(lines, "carina_share_sm_utilization_ratio") == ["0.3"]
    assert of(lines, "carina_share_processes") == ["2.0"]
    assert of(lines, "carina_share_pod_info") == ["1.0"]


def test_processes_without_a_figure_are_counted() -> None:
    seen = report(use(("train",), ("train-0", 1, 0)))
    pods = (seen.uses[0].pods[0].model_copy(update={"unmeasured": 3}),)
    uses = (seen.uses[0].model_copy(update={"pods": pods}),)
    lines = scrape(now(shared("train")), seen.model_copy(update={"uses": uses}))
    assert of(lines, "carina_share_unmeasured_processes") == ["3.0"]


def test_an_exceeded_share_is_marked_and_counted() -> None:
    seen = report(use(("train",), exceeded_since=900.0, exceeded=3, ended=2, idle_since=950.0))
    lines = scrape(now(shared("train")), seen)

    assert of(lines, "carina_share_memory_exceeded") == ["1.0"]
    assert of(lines, "carina_share_memory_exceeded_times_total") == ["3.0"]
    assert of(lines, "carina_share_processes_ended_total") == ["2.0"]
    assert of(lines, "carina_share_idle_since_timestamp_seconds") == ["950.0"]


def test_strangers_and_gpus_whose_processes_cannot_be_told_have_series() -> None:
    seen = report(
        strangers=(Strangers(gpu=GPUS[0], processes=2, memory_mib=3),),
        unwatched=(Unwatched(gpu=GPUS[1], reason='bad "\n' + "x" * 1000),),
    )
    lines = scrape(now(shared("train")), seen)

    assert of(lines, "carina_gpu_stranger_processes", 'gpu="0"') == ["2.0"]
    assert of(lines, "carina_gpu_stranger_memory_bytes", 'gpu="0"') == ["3.145728e+06"]
    (info,) = [line for line in lines if line.startswith("carina_gpu_unwatched_info{")]
    assert len(info) < 400
    assert info.endswith(" 1.0")


def test_a_use_that_holds_no_share_of_its_gpu_has_no_series_of_a_claim() -> None:
    lines = scrape(now(shared("train")), report(use(("train",), minor=1, exceeded_since=900.0)))
    assert not of(lines, "carina_share_memory_exceeded")


def test_a_report_on_claims_and_gpus_that_are_not_there_has_no_series() -> None:
    seen = report(
        use(("gone",), ("x", 1, 1)),
        use(("train",), ("x", 1, 1)).model_copy(update={"gpu": "GPU-?"}),
        strangers=(Strangers(gpu="GPU-?", processes=1, memory_mib=1),),
        unwatched=(Unwatched(gpu="GPU-?", reason="lost"),),
    )
    lines = scrape(now(shared("train")), seen)
    assert not of(lines, "carina_share_memory_used_bytes")
    assert not of(lines, "carina_gpu_stranger_processes")
    assert not of(lines, "carina_gpu_unwatched_info")
