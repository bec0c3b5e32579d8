"""What GPUs and shares use: from the metrics of plugins to what people and programs read."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carina_dra.sharing.message import Strangers, Unwatched
from kubelet_plugin.commands.gpu_usage import (
    DeviceUsage,
    MetricsError,
    NodeUsage,
    document,
    lines,
    node_usage,
)
from tests.samples.shares import GPUS, pod, report, shared, use
from tests.unit.kubelet_plugin.commands.plugin_metrics import MIB, metrics

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


def test_the_document_names_all_that_is_known_of_a_device() -> None:
    share = DeviceUsage(
        *("n", 1, "GPU-1", "share", "share"),
        claims=(("team", "train"),),
        pods=(("team", "train-0"),),
        memory_used=1.0,
        memory_given=2.0,
        sm_used=0.25,
        sm_given=0.5,
        memory_enforcement="mps",
        exceeded=True,
        exceeded_times=3,
        ended=4,
        idle_since=1000.0,
    )
    node = NodeUsage("n", watched=True, unwatched={"gpu-0": "lost"}, devices=(share,))
    assert document([node], {"m": "away"}) == {
        "nodes": [{"node": "n", "watched": True, "unwatched": {"gpu-0": "lost"}}],
        "devices": [
            {
                "node": "n",
                "gpu": "gpu-1",
                "uuid": "GPU-1",
                "type": "share",
                "device": "share",
                "claims": [{"namespace": "team", "name": "train"}],
                "pods": [{"namespace": "team", "name": "train-0"}],
                "memoryUsed": 1.0,
                "memoryGiven": 2.0,
                "smUsed": 0.25,
                "smGiven": 0.5,
                "memoryEnforcement": "mps",
                "exceeded": True,
                "exceededTimes": 3,
                "processesEnded": 4,
                "idleSince": 1000.0,
            }
        ],
        "unreadable": [{"node": "m", "reason": "away"}],
    }


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
