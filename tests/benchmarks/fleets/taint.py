"""A DeviceTaintRule that names no pool, so that it may concern every device."""

from typing import Final

from carina_dra.placement.cluster.cluster import Cluster
from carina_dra.resource import DeviceTaintRule, decode
from tests.benchmarks.fleet import DRIVER, Event, Scenario
from tests.benchmarks.fleets import unlike

_RULE: Final = "rule"


def _rule(device: str, value: str) -> DeviceTaintRule:
    taint = {"key": "example.com/service", "value": value, "effect": "NoSchedule"}
    selector = {"driver": DRIVER, "device": device}
    spec = {"deviceSelector": selector, "taint": taint}
    return decode(DeviceTaintRule, {"metadata": {"name": _RULE}, "spec": spec})


def _put(cluster: Cluster, repetition: int) -> None:
    cluster.put_rule(_rule("gpu-0", f"visit-{repetition}"))


def _put_unchanged(cluster: Cluster, _: int) -> None:
    cluster.put_rule(_rule("gpu-1", "visit"))


def _remove(cluster: Cluster, _: int) -> None:
    cluster.remove_rule(_RULE)


SCENARIO: Final = Scenario(
    name="taint",
    about="the unlike fleet of {nodes} nodes, and a DeviceTaintRule for a device of each pool",
    nodes=5000,
    make=unlike.make,
    one=unlike.one,
    events=(
        Event("rule added, then 2 GPUs", _put, unlike.like_pair, 300, _remove, times=3),
        Event("rule changed, then 2 GPUs", _put, unlike.like_pair, 300, times=3),
        Event(
            "rule put again unchanged, then 2 GPUs", _put_unchanged, unlike.like_pair, 300, times=3
        ),
    ),
)
