"""`carina top`: from the metrics of plugins to what people and programs read."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import sleep
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, generate_latest

from carina_dra.cli import command
from carina_dra.sharing.message import SharingReport, Strangers, Unwatched
from kubelet_plugin.claims.claim import NodeClaim
from kubelet_plugin.commands import top
from kubelet_plugin.commands.gpu_usage import (
    DeviceUsage,
    MetricsError,
    NodeUsage,
    document,
    lines,
    node_usage,
)
from kubelet_plugin.commands.listed import TOP
from kubelet_plugin.nvml.usage import GpuUsage
from kubelet_plugin.report.gpu_metrics import GpuMetrics
from kubelet_plugin.report.metrics import PluginMetrics
from kubelet_plugin.report.share_metrics import ShareMetrics
from kubelet_plugin.sharing.wanted import PodsOfClaims
from tests.samples.shares import GPUS, now, pod, report, shared, use

MIB = 2**20
AT = 1300.0
TABLE = """
NODE    GPU    DEVICE     CLAIM       POD           MEMORY                         SM       ENFORCED      IDLE
node-1  gpu-0  gpu        -           -             100/81920 MiB                  35 %     -             -
node-1  gpu-0  share      team/infer  team/infer-0  100/10240 MiB 1 ended          0/10 %   not enforced  5m
node-1  gpu-0  share      team/train  team/train-0  12000/10240 MiB over, 2 ended  25/40 %  not enforced  -
node-1  gpu-0  strangers  -           -             300 MiB                        -        -             -
node-1  gpu-1  gpu        -           -             -                              -        -             -
node-1: the processes of gpu-1 cannot be told: not supported
node-2: not read: no answer
"""  # noqa: E501 - as it is printed


def metrics(
    *claims: NodeClaim, seen: SharingReport | None = None, pods: PodsOfClaims | None = None
) -> str:
    """What a plugin says; without a report there is no carina-sharing."""
    registry = CollectorRegistry()
    plugin = PluginMetrics(registry)
    plugin.sharing_connected.set(seen is not None)
    state = now(*claims)
    usage = {GPUS[0]: GpuUsage(80 * 1024 * MIB, 100 * MIB, None, 0.35)}
    plugin.add(GpuMetrics(lambda: state, lambda: usage))
    plugin.add(ShareMetrics(lambda: state, lambda: seen, lambda: pods or {}))
    return generate_latest(registry).decode()


def shares(usage: NodeUsage) -> list[DeviceUsage]:
    return [device for device in usage.devices if device.kind == "share"]


def test_a_share_has_what_it_uses_of_what_it_is_given() -> None:
    seen = report(use(("train",), ("train-0", 512, 25), idle_since=1000.0))
    usage = node_usage("n", metrics(shared("train"), seen=seen, pods={"train": (pod("train-0"),)}))

    (share,) = shares(usage)
    assert (share.claims, share.pods) == ((("team", "train"),), (("team", "train-0"),))
    assert (share.memory_used, share.memory_given) == (512 * MIB, 10240 * MIB)
    assert (share.sm_used, share.sm_given) == (0.25, 0.4)
    assert (share.idle_since, share.exceeded) == (1000.0, False)
    assert (usage.watched, share.memory_enforcement) == (True, "none")


def test_who_has_shares_together_is_one_row() -> None:
    """A pod with two claims, one of which another pod uses, too."""
    seen = report(use(("a", "b"), ("one", 100, 1), ("two", 200, 2), given_mib=20480))
    pods = {"a": (pod("one"), pod("two")), "b": (pod("two"),), "c": (pod("three"),)}
    text = metrics(shared("a"), shared("b"), shared("c", cores=10), seen=seen, pods=pods)

    together, alone = shares(node_usage("n", text))
    assert together.claims == (("team", "a"), ("team", "b"))
    assert together.pods == (("team", "one"), ("team", "two"))
    assert (together.memory_used, together.memory_given) == (300 * MIB, 20480 * MIB)
    assert together.sm_given == pytest.approx(0.8)
    assert (alone.claims, alone.memory_used) == ((("team", "c"),), 0)


def test_whole_gpus_are_shown_with_their_memory_and_use() -> None:
    first, second = node_usage("n", metrics()).devices
    assert (first.kind, first.gpu, first.memory_used, first.sm_used) == ("gpu", 0, 100 * MIB, 0.35)
    shown = "\n".join(lines([node_usage("n", metrics())], {}, AT))
    assert "carina-sharing" not in shown, "nothing is shared"
    assert (second.gpu, second.memory_used) == (1, None)


def test_without_carina_sharing_it_is_said_that_use_is_not_known() -> None:
    usage = node_usage("n", metrics(shared("train")))
    (share,) = shares(usage)
    assert (share.memory_used, share.memory_given) == (None, 10240 * MIB)
    assert (share.sm_used, share.sm_given) == (None, 0.4)
    shown = "\n".join(lines([usage], {}, AT))
    assert "?/10240 MiB" in shown
    assert "n: carina-sharing does not run, so what its shares use is not known" in shown


def test_the_table() -> None:
    seen = report(
        use(("train",), ("train-0", 12000, 25), exceeded_since=1200.0, exceeded=1, ended=2),
        use(("infer",), ("infer-0", 100, 0), idle_since=1000.0, ended=1),
        strangers=(Strangers(gpu=GPUS[0], processes=2, memory_mib=300),),
        unwatched=(Unwatched(gpu=GPUS[1], reason="not supported"),),
    )
    pods = {"train": (pod("train-0"),), "infer": (pod("infer-0"),)}
    text = metrics(shared("train"), shared("infer", cores=10), seen=seen, pods=pods)

    shown = lines([node_usage("node-1", text)], {"node-2": "no answer"}, AT)
    assert "\n".join(shown) == TABLE.strip()


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        *((-5, "0s"), (0, "0s"), (59, "59s"), (60, "1m"), (3599, "59m"), (3600, "1h")),
        *((86399, "23h"), (86400, "1d"), (200_000, "2d")),
    ],
)
def test_a_time_is_shown_in_its_largest_unit(seconds: float, shown: str) -> None:
    idle = DeviceUsage("n", 0, "G", "share", "share", idle_since=AT - seconds)
    _, row = lines([NodeUsage("n", watched=True, devices=(idle,))], {}, AT)
    assert row.split()[-1] == shown


def test_three_names_are_shown_and_how_many_more_there_are() -> None:
    claims = tuple(("t", name) for name in "abcde")
    rows = [
        DeviceUsage("n", 0, "G", "share", "share", claims=claims[:count]) for count in (3, 4, 5)
    ]
    _, *shown = lines([NodeUsage("n", watched=True, devices=tuple(rows))], {}, AT)
    for row, more in zip(shown, ("", "+1", "+2"), strict=True):
        assert f"t/a, t/b, t/c {more}  " in row


def test_a_cell_has_60_letters_at_most() -> None:
    rows = [DeviceUsage("n" * length, 0, "G", "gpu", "gpu") for length in (60, 61)]
    _, first, second = lines([NodeUsage("n", watched=True, devices=tuple(rows))], {}, AT)
    assert first.split()[0] == "n" * 60
    assert second.split()[0] == "n" * 59 + "…"


def test_rows_are_in_the_order_of_gpus_kinds_and_names_whatever_is_read_first() -> None:
    share = 'carina_share_memory_given_bytes{{UUID="{0}",gpu="{1}",dra_claim_name="{2}"}} 1\n'
    whole = 'carina_gpu_info{{UUID="{0}",gpu="{1}"}} 1\n'
    text = "".join(
        (
            *(share.format("A", 1, "b"), share.format("A", 1, "a"), whole.format("A", 1)),
            *(share.format("B", 0, "c"), whole.format("B", 0)),
            'carina_gpu_stranger_processes{UUID="B",gpu="0"} 1\n',
            share.format("B", 0, "d"),
            'carina_gpu_info{UUID="B",gpu="0",GPU_I_ID="1",GPU_I_PROFILE="1g.10gb"} 1\n',
        )
    )
    devices = node_usage("n", text).devices
    assert [(device.gpu, device.kind, *device.claims) for device in devices] == [
        (0, "gpu"),
        (0, "mig"),
        (0, "share", ("", "c")),
        (0, "share", ("", "d")),
        (0, "strangers"),
        (1, "gpu"),
        (1, "share", ("", "a")),
        (1, "share", ("", "b")),
    ]


def test_gpus_whose_processes_cannot_be_told_are_in_the_order_of_their_names() -> None:
    node = NodeUsage("n", watched=True, unwatched={"gpu-1": "lost", "gpu-0": "lost"})
    assert list(lines([node], {}, AT))[1:] == [
        "n: the processes of gpu-0 cannot be told: lost",
        "n: the processes of gpu-1 cannot be told: lost",
    ]


def test_of_a_node_that_says_nothing_nothing_is_shown() -> None:
    usage = node_usage("n", "")
    assert usage == NodeUsage("n", watched=False)
    assert list(lines([usage], {}, AT)) == ["no node has a GPU"]


def test_a_row_of_several_has_their_names_in_order_and_what_any_of_them_exceeds() -> None:
    series = [
        'pod_info{{{0},namespace="t",pod="q",dra_claim_name="b"}} 1',
        'pod_info{{{0},namespace="t",pod="p",dra_claim_name="b"}} 1',
        'pod_info{{{0},namespace="t",pod="p",dra_claim_name="a"}} 1',
        'memory_exceeded{{{0},dra_claim_name="a"}} 1',
        'memory_exceeded{{{0},dra_claim_name="b"}} 0',
        'memory_exceeded_times_total{{{0},dra_claim_name="a"}} 2',
        'memory_exceeded_times_total{{{0},dra_claim_name="b"}} 3',
        'processes_ended_total{{{0},dra_claim_name="a"}} 4',
        'processes_ended_total{{{0},dra_claim_name="b"}} 5',
        'unmeasured_processes{{{0},namespace="t",pod="q"}} 1',
        'memory_used_bytes{{{0},namespace="t",pod="p"}} 5',
        'processes{{{0},namespace="t",pod="q"}} 0',
    ]
    text = "".join(f"carina_share_{line}\n".format('UUID="G",gpu="0"') for line in series)
    (share,) = shares(node_usage("n", f"{text}carina_sharing_connected 1\n"))
    assert (share.claims, share.pods) == ((("", "a"), ("", "b")), (("t", "p"), ("t", "q")))
    assert (share.exceeded, share.exceeded_times, share.memory_used) == (True, 3, 5)
    assert share.ended == 5


def test_the_claims_of_a_gpu_are_in_order() -> None:
    series = 'carina_gpu_info{{UUID="G",gpu="0",dra_claim_name="{}"}} 1\n'
    (whole,) = node_usage("n", "".join(series.format(name) for name in "hdbgface")).devices
    assert whole.claims == tuple(("", name) for name in "abcdefgh")


def test_the_document_has_the_word_of_what_enforces_memory_or_null() -> None:
    devices = [
        DeviceUsage("n", 0, "G", "share", "share", memory_enforcement=word)
        for word in ("kernel", "")
    ]
    written = document([NodeUsage("n", watched=True, devices=tuple(devices))], {})
    assert [entry["memoryEnforcement"] for entry in written["devices"]] == ["kernel", None]


def test_a_number_of_a_gpu_has_nine_digits_at_most() -> None:
    (whole,) = node_usage("n", 'carina_gpu_info{UUID="G",gpu="123456789"} 1\n').devices
    assert whole.gpu == 123456789


def test_amounts_of_no_pod_and_no_claim_are_left_out() -> None:
    used = 'carina_share_memory_used_bytes{UUID="G",gpu="0"} 1\n'
    given = 'carina_share_memory_given_bytes{UUID="G",gpu="0"} 1\n'
    assert shares(node_usage("n", used + given)) == []


def test_nodes_that_were_not_read_are_in_the_order_of_their_names() -> None:
    unreadable = {"b": "away", "a": "away"}
    assert list(lines([], unreadable, AT))[1:] == ["a: not read: away", "b: not read: away"]
    assert [entry["node"] for entry in document([], unreadable)["unreadable"]] == ["a", "b"]


def test_a_pod_of_which_no_claim_is_said_has_a_row() -> None:
    text = 'carina_share_memory_used_bytes{UUID="G",gpu="0",namespace="t",pod="p"} 1048576\n'
    (share,) = shares(node_usage("n", f"carina_sharing_connected 1\n{text}"))
    assert (share.claims, share.pods, share.memory_used) == ((), (("t", "p"),), MIB)


def test_a_partition_is_shown_with_its_profile_and_the_claim_that_has_it() -> None:
    labels = 'UUID="G",gpu="0",GPU_I_ID="3"'
    text = (
        f'carina_gpu_info{{{labels},GPU_I_PROFILE="1g.10gb",dra_claim_namespace="t",'
        'dra_claim_name="c"} 1\n'
        f"carina_gpu_memory_used_bytes{{{labels}}} 10\n"
        f"carina_gpu_memory_total_bytes{{{labels}}} 30\n"
    )
    (part,) = node_usage("n", text).devices
    assert (part.kind, part.device, part.claims) == ("mig", "1g.10gb", (("t", "c"),))
    assert (part.memory_used, part.memory_given, part.sm_used) == (10, 30, None)


def test_a_partition_of_which_no_profile_is_said_is_shown_as_one() -> None:
    (part,) = node_usage("n", 'carina_gpu_info{UUID="G",gpu="0",GPU_I_ID="3"} 1\n').devices
    assert (part.kind, part.device) == ("mig", "mig")


def test_the_document_has_bytes_and_parts_and_says_what_was_not_read() -> None:
    seen = report(
        use(("train",), ("train-0", 12000, 25), exceeded_since=1200.0, exceeded=1, ended=4)
    )
    usage = node_usage("n", metrics(shared("train"), seen=seen))
    written = json.loads(json.dumps(document([usage], {"m": "away"})))

    (share,) = [device for device in written["devices"] if device["type"] == "share"]
    assert share["claims"] == [{"namespace": "team", "name": "train"}]
    assert (share["memoryUsed"], share["exceeded"]) == (12000 * MIB, True)
    assert (share["exceededTimes"], share["processesEnded"]) == (1, 4)
    assert written["unreadable"] == [{"node": "m", "reason": "away"}]


@given(st.text(max_size=200), st.sampled_from(["carina_share_info{", "carina_gpu_info{", ""]))
def test_whatever_a_node_says_it_is_read_or_refused(text: str, start: str) -> None:
    try:
        usage = node_usage("n", start + text)
    except MetricsError:
        return
    json.dumps(document([usage], {}), allow_nan=False)
    list(lines([usage], {}, AT))


@pytest.mark.parametrize(
    "text",
    [
        'carina_share_memory_given_bytes{UUID="G",gpu="0",dra_claim_name="c"} NaN',
        'carina_share_memory_given_bytes{UUID="G",gpu="0",dra_claim_name="c"} 1e999',
        'carina_share_info{UUID="G",gpu="0",dra_claim_name="c",memory_enforcement="\\u202e"} 1',
    ],
)
def test_numbers_and_words_that_are_none_harm_nobody(text: str) -> None:
    usage = node_usage("n", text + "\n")
    json.dumps(document([usage], {}), allow_nan=False)
    list(lines([usage], {}, AT))


def test_the_sum_of_numbers_that_are_larger_than_any_amount_is_one() -> None:
    used = 'carina_share_memory_used_bytes{{UUID="G",gpu="0",pod="{}",namespace="n"}} 1e308\n'
    pairs = (
        'carina_share_pod_info{{UUID="G",gpu="0",pod="{}",namespace="n",dra_claim_name="c"}} 1\n'
    )
    text = "".join(line.format(name) for line in (used, pairs) for name in ("a", "b"))
    usage = node_usage("n", f"carina_sharing_connected 1\n{text}")
    assert len(shares(usage)) == 1
    json.dumps(document([usage], {}), allow_nan=False)


@pytest.mark.parametrize("number", ["xy", "", "²", "-1", "1" * 10])
def test_a_gpu_without_a_number_is_refused(number: str) -> None:
    with pytest.raises(MetricsError, match=f"GPU '{number}'"):
        node_usage("n", f'carina_gpu_info{{UUID="G",gpu="{number}"}} 1\n')


# --- the command ---


@dataclass
class Cluster:
    """The two things of an API server that the command uses: a list of pods, and their proxy."""

    url: str = ""
    pods: list[dict[str, Any]] = field(default_factory=list)
    pages: dict[str, Callable[[], tuple[int, str]]] = field(default_factory=dict)
    """By the name of the pod."""
    asked: list[str] = field(default_factory=list)
    pause: float = 0.0
    """Seconds after each byte of an answer."""

    def add(self, node: str, page: str | Callable[[], tuple[int, str]], ready: str = "") -> None:
        name = f"plugin-{len(self.pods)}"
        conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": ready}]
        self.pods.append(
            {
                "metadata": {"name": name, "namespace": "carina-system"},
                "spec": {"nodeName": node},
                "status": {"conditions": conditions if ready else []},
            }
        )
        self.pages[name] = (lambda: (200, page)) if isinstance(page, str) else page

    def answer(self, path: str) -> tuple[int, str]:
        self.asked.append(path)
        if path == "/metrics":
            return next(iter(self.pages.values()))()
        if path.startswith("/api/v1/namespaces/carina-system/pods?"):
            metadata = {"resourceVersion": "1"}
            return 200, json.dumps({"kind": "PodList", "metadata": metadata, "items": self.pods})
        if path.startswith("/api/v1/namespaces/carina-system/pods/"):
            name = path.split("/")[6]
            assert path.endswith(f"{name}/proxy/metrics")
            return self.pages[name]()
        message = 'pods is forbidden: User "u" cannot list resource "pods"'
        return 403, json.dumps({"kind": "Status", "code": 403, "message": message})


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    made = Cluster()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            code, body = made.answer(self.path)
            content = body.encode(errors="surrogateescape")
            self.send_response(code)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if not made.pause:
                self.wfile.write(content)
                return
            with suppress(OSError):  # who asked has given up
                for byte in content:
                    self.wfile.write(bytes([byte]))
                    sleep(made.pause)

        def log_message(self, *_: object) -> None:
            pass

    with ExitStack() as cleanup:
        server = cleanup.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), Handler))
        server.daemon_threads = True
        server.block_on_close = False
        threading.Thread(target=server.serve_forever, daemon=True).start()
        cleanup.callback(server.shutdown)
        made.url = f"http://127.0.0.1:{server.server_port}"
        kubeconfig = tmp_path / "kubeconfig"
        context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
        kubeconfig.write_text(
            json.dumps(
                {
                    "current-context": "c",
                    "contexts": [context],
                    "clusters": [{"name": "c", "cluster": {"server": made.url}}],
                    "users": [{"name": "u", "user": {}}],
                }
            )
        )
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
        yield made


def run(*words: str) -> int:
    return command.run(("top", *words), {"top": TOP})


def test_it_shows_all_nodes(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    for node in ("node-2", "node-1"):
        cluster.add(node, metrics(shared("train")))
    assert run() == 0
    rows = [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]]
    assert rows[:6] == ["node-1"] * 3 + ["node-2"] * 3


def test_of_two_plugins_of_a_node_the_one_that_became_ready_last_is_asked(
    cluster: Cluster,
) -> None:
    for ready in ("2026-01-02T00:00:00Z", "2026-01-01T00:00:00Z", ""):
        cluster.add("node-1", metrics(), ready)
    assert run() == 0
    assert [path.split("/")[6] for path in cluster.asked[1:]] == ["plugin-0"]


@pytest.mark.parametrize(
    "conditions",
    [
        [],
        [{"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-02T00:00:00Z"}],
        [{"type": "Initialized", "status": "True", "lastTransitionTime": "2026-01-02T00:00:00Z"}],
    ],
    ids=["says nothing", "no longer ready", "not yet ready"],
)
def test_a_plugin_that_is_not_ready_is_asked_only_if_no_other_of_its_node_is(
    cluster: Cluster, conditions: list[dict[str, str]]
) -> None:
    cluster.add("node-1", metrics(), "2026-01-01T00:00:00Z")
    cluster.add("node-1", metrics())
    cluster.pods[1]["status"]["conditions"] = conditions
    assert run() == 0
    assert [path.split("/")[6] for path in cluster.asked[1:]] == ["plugin-0"]


def test_a_pod_that_has_no_node_yet_is_not_asked(cluster: Cluster) -> None:
    cluster.add("", metrics())
    del cluster.pods[0]["status"]
    cluster.add("node-1", metrics())
    del cluster.pods[1]["status"]
    assert run() == 0
    assert [path.split("/")[6] for path in cluster.asked[1:]] == ["plugin-1"]


@pytest.mark.parametrize(
    ("words", "fields"),
    [((), None), (("--node", "node-1"), ["spec.nodeName=node-1"])],
    ids=["all nodes", "one node"],
)
def test_the_pods_of_plugins_are_listed_and_no_others(
    cluster: Cluster, words: tuple[str, ...], fields: list[str] | None
) -> None:
    cluster.add("node-1", metrics())
    assert run(*words) == 0
    asked = parse_qs(urlsplit(cluster.asked[0]).query)
    assert asked["labelSelector"] == ["app.kubernetes.io/component=kubelet-plugin"]
    assert asked.get("fieldSelector") == fields


@pytest.mark.parametrize("nodes", [["hangs"], ["good", "hangs"]], ids=str)
def test_who_has_not_answered_in_time_is_not_waited_for(nodes: list[str]) -> None:
    end = threading.Event()

    def read(node: str) -> NodeUsage:
        assert threading.current_thread().daemon, "else the command does not end"
        if node == "hangs":
            end.wait(30)
        return NodeUsage(node, watched=True)

    found = {**top._at_once(nodes, read, seconds=0.5)}
    end.set()
    assert str(found.pop("hangs")) == "no answer after 0.5 s"
    assert found == {node: NodeUsage(node, watched=True) for node in nodes[:-1]}


def test_sixteen_nodes_are_asked_at_a_time() -> None:
    asking: set[str] = set()
    all_ask = threading.Barrier(16)

    def read(node: str) -> NodeUsage:
        all_ask.wait(30)
        asking.add(threading.current_thread().name)
        return NodeUsage(node, watched=True)

    nodes = [f"node-{number}" for number in range(32)]
    found = top._at_once(nodes, read, seconds=60)
    assert found == {node: NodeUsage(node, watched=True) for node in nodes}
    assert len(asking) == 16


def test_a_node_that_does_not_answer_is_named_and_stops_no_other(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(top, "_PATIENCE", 0.5)
    end = threading.Event()

    def hangs() -> tuple[int, str]:
        end.wait(30)
        return 200, ""

    cluster.add("good", metrics(shared("train")))
    cluster.add("hangs", hangs)
    cluster.add("fails", lambda: (503, "dial tcp: no route to host"))
    cluster.add("lies", "carina_gpu_info{{{ \x1b[2J")
    assert run() == 3
    end.set()
    shown = capsys.readouterr().out
    assert "team/train" in shown
    assert "\x1b" not in shown
    for name in ("hangs: not read", "fails: not read: get pods/proxy", "lies: not read"):
        assert name in shown


def test_a_huge_answer_is_not_read_to_its_end(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(top, "_MOST_BYTES", 100_000)
    cluster.add("node-1", "x" * 1_000_000)
    assert run() == 3
    assert "more than 100000 bytes" in capsys.readouterr().out


def test_a_missing_permission_is_named_with_who_grants_it(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("-n", "elsewhere") == 2
    error = capsys.readouterr().err
    assert 'cannot list resource "pods"' in error
    assert "get of pods/proxy in namespace elsewhere" in error
    assert "Role carina-top" in error

    denied = {"kind": "Status", "code": 403, "message": "no pods/proxy for you"}
    cluster.add("node-1", lambda: (403, json.dumps(denied)))
    assert run() == 2
    assert "no pods/proxy for you" in capsys.readouterr().err


def test_a_node_that_may_not_be_read_stops_no_other(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.add("node-1", metrics())
    cluster.add("node-2", lambda: (403, json.dumps({"kind": "Status", "code": 403})))
    assert run() == 3
    shown = capsys.readouterr().out
    assert "node-1  gpu-0" in shown
    assert "node-2: not read" in shown


def test_an_error_is_shown_as_text(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    denied = {"kind": "Status", "code": 403, "message": "n\u00e3o \x1b[2J"}
    cluster.add("node-1", lambda: (403, json.dumps(denied)))
    assert run() == 2
    assert "n\u00e3o \\x1b[2J" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "where"),
    [((), "carina-system;"), (("--node", "node-9"), "carina-system on node node-9;")],
    ids=str,
)
def test_a_namespace_without_a_plugin_is_an_error(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], where: str
) -> None:
    assert run(*words) == 2
    error = capsys.readouterr().err
    assert f"there is no pod of the kubelet plugin in namespace {where}" in error


def test_the_plugin_of_one_node_is_read_without_a_cluster(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/is/not/there")
    cluster.add("node-1", metrics(shared("train")))
    assert run("--metrics-url", cluster.url, "-o", "json") == 0
    assert cluster.asked == ["/metrics"]
    written = json.loads(capsys.readouterr().out)
    assert written["nodes"][0]["node"] == "127.0.0.1"


@pytest.mark.parametrize(
    ("path", "asked"), [("", "/metrics"), ("/", "/metrics"), ("/node/metrics", "/node/metrics")]
)
def test_a_url_without_a_path_is_that_of_the_metrics(
    cluster: Cluster, path: str, asked: str
) -> None:
    cluster.add("node-1", metrics())
    run("--metrics-url", f"{cluster.url}{path}")
    assert cluster.asked == [asked]


def test_bytes_that_are_no_text_stop_nothing(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.add("node-1", 'carina_gpu_info{UUID="G",gpu="0",dra_claim_name="\udcff"} 1\n')
    assert run("--metrics-url", cluster.url) == 0
    assert "/\ufffd" in capsys.readouterr().out


@pytest.mark.parametrize(
    "url", ["10.0.0.7:8080", "file:///etc/passwd", "ftp://10.0.0.7/metrics", "http://"]
)
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(SystemExit, match="2"):
        run("--metrics-url", url)


def test_a_url_may_be_one_of_tls() -> None:
    assert run("--metrics-url", "https://127.0.0.1:1") == 2, "nobody listens there"


@pytest.mark.parametrize("seconds", ["0.09", "3601", "nan", "often"])
def test_what_is_no_interval_is_refused(seconds: str) -> None:
    with pytest.raises(SystemExit, match="2"):
        run("--interval", seconds)


def test_its_help_has_a_line_for_each_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        run("--help")
    assert "  3  at least one node did not answer; it is named" in capsys.readouterr().out


def test_a_node_whose_answer_has_no_end_is_given_up(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(top, "_PATIENCE", 0.5)
    cluster.add("drips", "#" * 100)
    cluster.pause = 0.3
    assert run("--metrics-url", cluster.url) == 2
    assert "takes longer than 0.5 s" in capsys.readouterr().err


def test_it_watches_on_when_nothing_can_be_read_for_a_while(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter(
        [(200, metrics()), (503, "no route"), (200, "carina_gpu_info{{"), (200, metrics())]
    )
    cluster.add("node-1", lambda: next(answers))
    looks = iter([None, None, None])

    def pause(_: float) -> None:
        if next(looks, 0) == 0:
            raise KeyboardInterrupt

    monkeypatch.setattr("kubelet_plugin.commands.top.time.sleep", pause)
    with pytest.raises(KeyboardInterrupt):
        run("--metrics-url", cluster.url, "--watch")
    shown = capsys.readouterr()
    assert shown.out.count("NODE") == 2
    assert shown.err.count("carina top: ") == 2


@dataclass
class Looks:
    """The pauses between two looks, until it is interrupted in the last one."""

    most: int
    seconds: list[float] = field(default_factory=list)

    def pause(self, seconds: float) -> None:
        self.seconds.append(seconds)
        if len(self.seconds) == self.most:
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ((), 2.0),
        (("--interval", "5"), 5.0),
        (("--interval", "0.1"), 0.1),
        (("--interval", "3600"), 3600.0),
    ],
    ids=str,
)
def test_it_watches_until_it_is_interrupted(
    cluster: Cluster,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    seconds: float,
) -> None:
    cluster.add("node-1", metrics())
    looks = Looks(3)
    monkeypatch.setattr("kubelet_plugin.commands.top.time.sleep", looks.pause)
    with pytest.raises(KeyboardInterrupt):
        run("-w", *words)
    assert looks.seconds == [seconds] * 3
    assert capsys.readouterr().out.count("NODE") == 3


@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "pipe"])
@pytest.mark.parametrize("watching", [True, False], ids=["watching", "once"])
def test_a_terminal_is_cleared_before_each_look_and_nothing_else_is(
    cluster: Cluster,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    *,
    watching: bool,
    terminal: bool,
) -> None:
    cluster.add("node-1", metrics())
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal)
    monkeypatch.setattr("kubelet_plugin.commands.top.time.sleep", Looks(2).pause)
    with suppress(KeyboardInterrupt):
        run(*(["--watch"] if watching else []))
    shown = capsys.readouterr().out
    assert shown.count("\x1b[H\x1b[2JNODE") == (2 if watching and terminal else 0)
    assert ("\x1b" in shown) is (watching and terminal)
