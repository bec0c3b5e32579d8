"""`carina queue`, `carina free` and `carina snapshot`: arguments, output and exit codes."""

import json
from pathlib import Path

import pytest

from carina_dra.cli import command
from controller.commands import listed
from controller.engine.files.file import write_snapshot
from controller.engine.model.resource import Memory
from tests.unit.controller.engine.scene import GIB, Scene

_COMMANDS = {
    "free": listed.FREE,
    "queue": listed.QUEUE,
    "snapshot": listed.SNAPSHOT,
    "why": listed.WHY,
}


def run(*words: str) -> int:
    return command.run(words, _COMMANDS)


@pytest.fixture
def file(tmp_path: Path) -> str:
    scene = Scene().node("n", 8).queue("company", quota=None, limit=8)
    scene.queue("research", "company", quota=4).queue("product", "company", quota=2)
    scene.queue("lost", "gone")
    scene.runs("t/old", "n", gpus=6, queue="research").waits("t/job/new", gpus=4, queue="research")
    path = tmp_path / "snapshot.json"
    path.write_text(write_snapshot(scene.snapshot()))
    return str(path)


def test_queues_are_a_tree_with_their_resources(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("queue", "-f", file) == 0
    *table, note = capsys.readouterr().out.splitlines()
    assert [" ".join(line.split()) for line in table] == [
        "QUEUE RESOURCE ALLOCATED QUOTA FAIR SHARE LIMIT PENDING RUNNING WAITING",
        "company deviceClass gpu 6 unlimited 8 8 4 1 1",
        "product deviceClass gpu 0 2 0 - 0 0 0",
        "research deviceClass gpu 6 4 8 - 4 1 1",
        "lost - - - - - - 0 0",
    ]
    assert [line[:3] for line in table[1:4]] == ["com", "  p", "  r"]
    assert note.startswith("lost: queue lost takes no work: queue gone, which is above it, does")


def test_one_queue_is_shown_with_those_below_it(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("queue", "company", "-f", file, "-o", "json") == 0
    queues = json.loads(capsys.readouterr().out)["queues"]
    assert [(one["name"], one.get("parent")) for one in queues] == [
        ("company", None),
        ("product", "company"),
        ("research", "company"),
    ]
    assert queues[0]["resources"] == [
        {
            "deviceClass": "gpu",
            "allocated": 6,
            "fairShare": 8,
            "pending": 4,
            "quota": "unlimited",
            "limit": 8,
        }
    ]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["a", "b"], "'a b' is not [QUEUE], stop QUEUE or resume QUEUE"),
        (["stop", "a", "b"], "'stop a b' is not [QUEUE], stop QUEUE or resume QUEUE"),
        (["--drain"], "--drain needs stop QUEUE"),
        (["resume", "a", "--drain"], "--drain does not go with resume"),
        (["stop", "a", "-f", "x"], "stop changes the cluster of the kubeconfig; leave out -f"),
    ],
)
def test_what_is_not_valid_to_stop_a_queue_changes_nothing(
    words: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("queue", *words) == 2
    assert capsys.readouterr().err == f"carina queue: {problem}\n"


def test_a_queue_can_be_called_stop(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "snapshot.json"
    path.write_text(write_snapshot(Scene().node("n", 1).queue("stop", quota=1).snapshot()))
    assert run("queue", "stop", "-f", str(path)) == 0
    assert "stop" in capsys.readouterr().out


def test_amounts_of_memory_are_quantities(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "snapshot.json"
    scene = Scene().node("n").queue("q", quota=64 * GIB, resource=Memory())
    path.write_text(write_snapshot(scene.snapshot()))
    assert run("queue", "-f", str(path)) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[:4] == ["q", "memory", "0", "64Gi"]


def test_what_is_free_is_shown_by_model_node_and_gang(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("free", "-f", file) == 0
    assert capsys.readouterr().out.splitlines() == [
        "CLASS  MODEL  FREE  TOTAL",
        "gpu    -      2     8",
        "",
        "NODE  CLASS  FREE  TOTAL",
        "n     gpu    2     8",
        "",
        "the largest gang that fits now, of pods with one device each:",
        "  gpu: 2 in the cluster, 2 on one node",
    ]


def test_a_snapshot_is_written_for_other_commands(
    file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("snapshot", "-f", file) == 0
    copy = tmp_path / "copy.json"
    copy.write_text(capsys.readouterr().out)
    assert run("queue", "-f", str(copy)) == 0
    from_copy = capsys.readouterr().out
    assert run("queue", "-f", file) == 0
    assert capsys.readouterr().out == from_copy


@pytest.mark.parametrize("name", ["t/job/new", "t/new", "t/t/job/new-0"])
def test_why_takes_the_group_its_owner_or_a_pod(
    name: str, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("why", name, "-f", file) == 3
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first == "t/job/new: queue research, pods: 1 waiting"
    assert second == "it is number 1 of 1 that wait in the queue"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("queue", "reserch"), "there is no queue 'reserch'; did you mean research?"),
        (("free", "--class", "gpus"), "there is no DeviceClass 'gpus'; the classes are: gpu"),
    ],
)
def test_a_name_that_is_not_known_is_refused(
    words: tuple[str, ...], error: str, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words, "-f", file) == 2
    assert capsys.readouterr().err == f"carina {words[0]}: {error}\n"


@pytest.mark.parametrize("name", ["queue", "free", "snapshot"])
def test_a_file_that_is_no_snapshot_is_refused(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "file"
    path.write_text("{}")
    assert run(name, "-f", str(path)) == 2
    assert capsys.readouterr().err.startswith(f"carina {name}: ")
