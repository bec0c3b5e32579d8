"""The example of docs/scheduling.md."""

from tests.unit.controller.engine.scene import Scene, evicted, nominated, started


def test_the_example_of_the_documentation() -> None:
    scene = Scene().node("node-a", 4).node("node-b", 4)
    scene.queue("research", quota=4).queue("product", quota=4)
    nodes = ["node-a"] * 4 + ["node-b"] * 2
    scene.runs("sweep", *nodes, queue="research", least=1, created=1)
    scene.runs("probe", "node-b", queue="research", created=2)
    scene.runs("serve", "node-b", queue="product")
    scene.waits("train", 2, queue="product", created=3).waits("eval", queue="research", created=4)
    plan = scene.plan()
    shares = {queue: of["deviceClass gpu"] for queue, of in plan.fair_shares.items()}
    assert shares == {"product": 3, "research": 5}
    assert evicted(plan) == ["sweep-5", "sweep-4"]
    assert nominated(plan) == {"train-0": "node-b", "train-1": "node-b"}
    assert started(plan) == {}
    reason = "fair share of queue research: deviceClass gpu: 5 in use and 1 asked for, of 5"
    assert reason in map(str, plan.waiting["eval"])
