"""What is written reads as it was."""

import json

import yaml
from hypothesis import HealthCheck, given, settings

from carina_dra.cli.output import YamlDumper
from controller.engine.files.file import read_snapshot, write_snapshot
from controller.engine.files.queue import read_queue, write_queue
from controller.engine.files.snapshot import plan_document, read_plan, snapshot_documents
from controller.engine.model.plan import Plan
from controller.engine.model.queue import Queue
from controller.engine.model.snapshot import Snapshot
from tests.samples.engine_values import plans, queues, snapshots

_LARGE = settings(
    max_examples=20, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@_LARGE
@given(snapshots())
def test_a_snapshot_survives_json(snapshot: Snapshot) -> None:
    assert read_snapshot("a.json", write_snapshot(snapshot).encode()) == snapshot


@_LARGE
@given(snapshots())
def test_a_snapshot_survives_yaml(snapshot: Snapshot) -> None:
    text = yaml.dump_all(snapshot_documents(snapshot), Dumper=YamlDumper, allow_unicode=True)
    assert read_snapshot("a.yaml", text.encode()) == snapshot


@given(queues)
def test_a_queue_survives_json(queue: Queue) -> None:
    assert read_queue(json.loads(json.dumps(write_queue(queue)))) == queue


@_LARGE
@given(plans)
def test_a_plan_survives_json(plan: Plan) -> None:
    assert read_plan(json.loads(json.dumps(plan_document(plan)))) == plan
