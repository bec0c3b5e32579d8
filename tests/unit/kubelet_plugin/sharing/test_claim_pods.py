"""Which pods use a claim, as the client of carina-sharing comes to know them."""

from dataclasses import replace

import pytest

from carina_dra.kube.api_resource import RESOURCE_CLAIMS
from carina_dra.kube.body import Body
from carina_dra.kube.errors import ApiOperation, NotFound, Unreachable
from kubelet_plugin.claims.claim import ClaimReference
from tests.eventually import eventually
from tests.unit.kubelet_plugin.sharing.client_node import Node, names, report, shared

AWAY = Unreachable(ApiOperation.on("get", RESOURCE_CLAIMS), "no answer")


@pytest.mark.parametrize("template", [False, True], ids=["of a user", "said to be of a template"])
def test_a_second_pod_of_a_claim_is_found_when_strangers_compute(
    node: Node, template: bool
) -> None:
    node.record(shared("a", template=template), shared("b"))
    node.pods = {"a": ["first"], "b": ["other"]}
    server, plugin = node.server(), node.plugin()
    eventually(lambda: names(server) == ["a", "b"])
    node.pods["a"] = ["first", "second"]

    server.say(report("a", "b", strangers=1))

    def pods() -> list[str]:
        return [pod.name for pod in server.told[-1].shares[0].pods]

    eventually(lambda: pods() == ["first", "second"])
    eventually(lambda: plugin.repairs == 1)
    assert plugin.pods.pods_of("a") == {"first", "second"}


def test_a_claim_of_several_pods_is_read_again_at_each_repair_until_one_is_left(node: Node) -> None:
    node.record(shared("a"))
    node.pods = {"a": ["first", "second"]}
    server, plugin = node.server(), node.plugin()
    eventually(lambda: names(server) == ["a"])
    node.pods["a"] = ["second"]

    assert plugin.pods.pods_of("a") == {"first", "second"}

    eventually(lambda: plugin.pods.pods_of("a") == {"second"})
    eventually(lambda: plugin.repairs == 2)
    reads = len(node.reads)
    assert plugin.pods.pods_of("a") == {"second"}
    assert not plugin.pods._asked
    assert len(node.reads) == reads


def test_a_claim_that_was_prepared_for_other_pods_is_read_again(node: Node) -> None:
    node.record(shared("a"))
    node.pods = {"a": ["first"]}
    server, plugin = node.server(), node.plugin()
    eventually(lambda: names(server) == ["a"])
    node.pods["a"] = ["second"]

    plugin.pods.prepared(replace(shared("a"), pods=("second",)))

    eventually(lambda: plugin.pods.pods_of("a") == {"second"})
    reads = len(node.reads)
    plugin.pods.prepared(replace(shared("a"), pods=("second",)))
    plugin.pods.prepared(shared("a"))
    assert not plugin.pods._asked
    assert len(node.reads) == reads


@pytest.mark.parametrize("again", [False, True], ids=["deleted", "created again"])
def test_the_pods_of_a_claim_that_was_deleted_stay_known(node: Node, again: bool) -> None:
    node.record(shared("a"))
    node.pods = {"a": ["first"]}
    server, plugin = node.server(), node.plugin()
    eventually(lambda: names(server) == ["a"])
    if again:
        node.uids["a"] = "another"
    else:
        node.failing = NotFound(ApiOperation.on("get", RESOURCE_CLAIMS), "it is gone")
    reads = len(node.reads)

    server.say(report("a", strangers=1))

    eventually(lambda: len(node.reads) > reads and not plugin.pods._asked)
    assert [pod.name for pod in plugin.pods.known["a"]] == ["first"]


def test_strangers_that_stay_are_asked_about_rarer_and_rarer(node: Node) -> None:
    node.record(shared("a"))
    server, plugin = node.server(), node.plugin()
    eventually(lambda: names(server) == ["a"])
    start = len(node.reads)
    for second in range(0, 3600, 10):
        plugin.seconds = float(second)
        seen = plugin.client.report
        server.say(report("a", strangers=1, at=float(second)))
        eventually(lambda seen=seen: plugin.client.report is not seen)  # type: ignore[misc]
    eventually(lambda: not plugin.pods._asked)
    assert 5 <= len(node.reads) - start <= 16


def test_the_first_message_waits_for_the_pods_but_not_for_ever(node: Node) -> None:
    node.record(shared("a"))
    node.failing = AWAY
    server, plugin = node.server(), node.plugin()
    eventually(lambda: len(node.reads) > 3)
    assert not server.told
    plugin.seconds = 6.0
    eventually(lambda: names(server) == ["a"])
    node.pods["a"] = ["pod"]
    node.failing = None
    eventually(lambda: bool(server.told[-1].shares[0].pods))


def test_a_claim_that_cannot_be_read_keeps_no_other_from_being_read(node: Node) -> None:
    node.record(shared("a"), shared("b"))
    read = node.read

    def failing(claim: ClaimReference) -> Body:
        if claim.name == "a":
            raise AWAY
        return read(claim)

    node.pods["b"] = ["pod"]
    node.read = failing  # type: ignore[method-assign]
    node.server()
    plugin = node.plugin()
    eventually(lambda: "b" in plugin.pods.known)
