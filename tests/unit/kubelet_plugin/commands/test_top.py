"""`carina top`: which plugins it asks, what it waits for, and how it shows what they say."""

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

from carina_dra.cli import command
from kubelet_plugin.commands import top
from kubelet_plugin.commands.gpu_usage import NodeUsage
from kubelet_plugin.commands.listed import TOP
from tests.samples.shares import shared
from tests.unit.kubelet_plugin.commands.plugin_metrics import metrics


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
