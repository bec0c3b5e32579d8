"""What is wrong with a scenario is said with its file, document, field and reason."""

import json
from typing import Any

import pytest
import yaml

from carina_dra.manifests.manifest import ManifestError
from controller.engine.simulate.file import Overrides, read_trace
from tests.unit.controller.engine.simulate.scenarios import HEADER, NODES, scenario

_GENERATOR: dict[str, Any] = {
    "name": "g",
    "queue": "q",
    "arrivals": {"perHour": 1},
    "duration": "1h",
    "sizes": [{"gpus": 1}],
}


def refusal(*documents: Any) -> str:
    with pytest.raises(ManifestError) as caught:
        read_trace("s.yaml", yaml.safe_dump_all(documents).encode())
    return str(caught.value)


def generator(**fields: Any) -> dict[str, Any]:
    return scenario(until="1h", generators=[{**_GENERATOR, **fields}])


def node(**fields: Any) -> dict[str, Any]:
    return scenario(nodes=[{**NODES[0], **fields}])


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ({**HEADER}, "lacks name, nodes, queues"),
        (
            scenario({"limits": {"nvidia.com/gpus": 1}}),
            "jobs[0].limits: is 'nvidia.com/gpus', which is not an extended resource of a device",
        ),
        (
            scenario({"limits": {"nvidia.com/gpu": 0}}),
            "jobs[0]: limits[nvidia.com/gpu] is 0; it must be at least 1",
        ),
        (scenario(seeds=1), "seeds: is not a field of Scenario; did you mean seed?"),
        (
            scenario({"durration": "1h"}),
            "jobs[0].durration: is not a field of JobTemplate; did you mean duration?",
        ),
        (scenario({"duration": "1 hour"}), "jobs[0].duration: is '1 hour', not a duration such"),
        (scenario({"pods": 0}), "jobs[0]: pods is 0; it must be at least 1"),
        (
            scenario({"pods": 2, "minPods": 3}),
            "jobs[0]: minPods is 3; it must be from 0 to pods (2)",
        ),
        (scenario({"gpus": -1}), "jobs[0]: gpus is -1; it must not be negative"),
        (node(leastShare="2"), "nodes[0]: leastShare is 2; it must be a fraction from 1/1000 to 1"),
        (scenario({"cpu": "lots"}), "jobs[0].cpu: 'lots' is not a quantity;"),
        (
            scenario({"queue": "r"}),
            "jobs[0].queue: is 'r', which is not a queue of the scenario; write one of q",
        ),
        (
            scenario({"devices": [{"count": 1}]}),
            "jobs[0].devices[0]: write either deviceClass or firstAvailable",
        ),
        (
            scenario({"devices": [{"deviceClass": "gpu.carina.de"}]}),
            "jobs[0].devices[0]: is 'gpu.carina.de', which is not a device class of the scenario;",
        ),
        (
            scenario({"devices": [{"deviceClass": "gpu.carina.dev", "selectors": ["device."]}]}),
            "jobs[0]: makes a claim that is not valid: spec.devices.requests[0].exactly.selec",
        ),
        (
            scenario({"topology": {"topology": "net"}}),
            "jobs[0].topology: is 'net', which is not a topology of the scenario; the scenario has",
        ),
        (
            scenario(
                {"topology": {"topology": "net", "required": "x"}}, topologies={"net": ["rack"]}
            ),
            "jobs[0].topology: is 'x', which is not a level of the topology of the scenario;",
        ),
        (
            scenario({"name": "a"}, {"name": "a"}),
            "has jobs and generators with the same name a; rename one of them",
        ),
        (node(count=0), "nodes[0]: count is 0; it must be at least 1"),
        (node(domains={"rack": 0}), "nodes[0]: domains[rack] is 0; it must be at least 1"),
        (node(devices=["vgpu"]), "nodes[0].devices[0]: is 'vgpu', not one of gpu, mig, share"),
        (
            scenario(queues=[{"name": "q", "resources": [{"name": "gpu"}]}]),
            "queues[0].resources[0].name: is 'gpu', not one of cpu, memory, pods",
        ),
        (
            scenario(queues=[{"name": "q", "parent": "p"}]),
            "queues[0].parent: is 'p', which is not a queue of the scenario; write one of q",
        ),
        (
            scenario({}, queues=[{"name": "q"}, {"name": "r", "parent": "q"}]),
            "jobs[0].queue: is 'q', which has queues below it",
        ),
        (generator(sizes=[]), "generators[0]: sizes is empty; write at least one, such as gpus: 1"),
        (
            generator(arrivals={"perHour": 0}),
            "generators[0].arrivals: perHour is 0.0; it must be more than 0",
        ),
        (
            generator(duration={"normal": {}}),
            "generators[0].duration: has 'normal'; did you mean logNormal?",
        ),
        (
            {**generator(), "until": None},
            "generators[0]: has no last, and the scenario no until; write one",
        ),
        (
            scenario(events=[{"at": "1h", "gone": ["node-7"]}]),
            "events[0].gone: is 'node-7', which is not a node of the scenario; did you mean node-",
        ),
        (
            scenario(events=[{"at": "1h", "gone": ["node-1"]}, {"at": "2h", "gone": ["node-1"]}]),
            "events[1].gone: is 'node-1', which is gone already",
        ),
        (
            scenario(settings={"placement": "tight"}),
            "settings.placement: policy 'tight': write binpack, spread,",
        ),
    ],
)
def test_the_message_names_document_field_and_reason(document: Any, problem: str) -> None:
    assert refusal(document).startswith(f"s.yaml, document 1: Scenario: {problem}")


@pytest.mark.parametrize(
    ("documents", "problem"),
    [
        ([None], "s.yaml: has no Scenario and no Snapshot; write apiVersion: scheduling.carina"),
        (
            [scenario(), scenario()],
            "s.yaml, document 2: Scenario: is also in s.yaml, document 1",
        ),
        (
            [scenario(), {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node"}}],
            "s.yaml, document 2: is neither a Scenario nor a DeviceClass;",
        ),
        (
            [scenario(), {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "spce": {}}],
            "s.yaml, document 2: DeviceClass: spce: is not a field of DeviceClass; did you mean",
        ),
    ],
)
def test_what_does_not_fit_together_is_refused(documents: list[Any], problem: str) -> None:
    assert refusal(*documents).startswith(problem)


def test_a_file_that_is_not_yaml_is_refused() -> None:
    with pytest.raises(ManifestError, match=r"^s.yaml, document 1: is not valid YAML: line 2"):
        read_trace("s.yaml", b"a: [")


def test_a_device_class_beside_the_scenario_can_be_asked_for() -> None:
    own = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "any"},
        "spec": {},
    }
    written = [scenario({"devices": [{"deviceClass": "any"}]}), own]
    trace = read_trace("s.yaml", yaml.safe_dump_all(written).encode())
    assert "any" in [each.metadata.name for each in trace.start.classes]


def test_another_seed_gives_other_jobs_and_the_same_seed_the_same() -> None:
    content = json.dumps(generator(arrivals={"perHour": 50})).encode()

    def arrivals(seed: int) -> list[float]:
        return [job.arrival for job in read_trace("s.json", content, Overrides(seed=seed)).jobs]

    assert arrivals(1) == arrivals(1) != arrivals(2)


def test_a_snapshot_without_a_time_to_begin_at_is_refused() -> None:
    snapshot = {"apiVersion": HEADER["apiVersion"], "kind": "Snapshot", "now": "inf"}

    assert refusal(snapshot) == "s.yaml: Snapshot: now: is infinite; write a time in seconds"
