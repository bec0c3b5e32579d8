"""GPUs that claims share by memory and cores."""

from collections.abc import Iterator
from random import Random
from typing import Final

from tests.benchmarks.claims import has_model, match, pod, request
from tests.benchmarks.fleet import DRIVER, Asking, Fleet, Object, Pod, Question, Scenario
from tests.benchmarks.gpus import MODELS, PER_NODE, gpu
from tests.benchmarks.pool import node_name, nodes, share_holder, slices_of

_SEED: Final = 4
_MEMORY_GIB, _CORES = 80, 100
_MOST_SHARES: Final = 3


def make(number: int) -> Fleet:
    """Each GPU has up to three shares of random amounts: 60,000 on 5,000 nodes."""

    def slices() -> Iterator[Object]:
        for node in range(number):
            yield from slices_of(node, [_shareable(node, index) for index in range(PER_NODE)])

    def in_use() -> Iterator[Object]:
        random = Random(_SEED)
        for node in range(number):
            for index in range(PER_NODE):
                free = _MEMORY_GIB
                for share in range(random.randint(0, _MOST_SHARES)):
                    memory, cores = random.randint(1, 30), random.randint(1, 25)
                    if memory <= free:
                        free -= memory
                        amounts = {"memory": f"{memory}Gi", "cores": str(cores)}
                        yield share_holder(node_name(node), f"gpu-{index}", share, amounts)

    return Fleet(nodes(number), slices, in_use)


def _shareable(node: int, index: int) -> Object:
    policy = {"validRange": {"min": "1", "step": "1"}, "default": "1"}
    of_memory = {"validRange": {"min": "1Gi", "step": "1Gi"}, "default": "1Gi"}
    return {
        **gpu(node, index),
        "allowMultipleAllocations": True,
        "capacity": {
            "memory": {"value": f"{_MEMORY_GIB}Gi", "requestPolicy": of_memory},
            "cores": {"value": str(_CORES), "requestPolicy": policy},
        },
    }


def share(memory_gib: int, cores: int, selector: str = "") -> Pod:
    """A share of a GPU."""
    return pod(request(selector, amounts={"memory": f"{memory_gib}Gi", "cores": str(cores)}))


def one(_: int) -> Pod:
    """A share of a tenth."""
    return share(10, 10)


def _two_of_one_gpu(number: int) -> Pod:
    """Two shares of one GPU; a GPU that is free has room for one of them."""
    memory = f"{_MEMORY_GIB // 2 + 1 + number}Gi"
    return pod(
        *(request(name=name, amounts={"memory": memory, "cores": "1"}) for name in ("a", "b")),
        constraints=(match(f"{DRIVER}/uuid"),),
    )


def _any_amounts(number: int) -> Pod:
    random = Random(number)
    return share(random.randint(1, 40), random.randint(1, 50))


SCENARIO: Final = Scenario(
    name="shares",
    about="{nodes} nodes of 8 GPUs that are shared, with 12 shares a node of random amounts",
    nodes=5000,
    make=make,
    one=one,
    questions=(
        Question(
            "1 share, new kind",
            Asking.NEW,
            lambda number: share(5 + number, 10, has_model(MODELS[number % len(MODELS)])),
            30,
        ),
        Question("1 share, like", Asking.LIKE, one, 1, times=300),
        Question("1 share, amounts vary", Asking.AMOUNTS, _any_amounts, 2, times=300),
        Question(
            "1 share larger than any GPU, new kind",
            Asking.NEW,
            lambda number: share(_MEMORY_GIB + 1 + number, 10),
            30,
        ),
        Question(
            "2 shares of a GPU, of which it has room for one, new kind",
            Asking.NEW,
            _two_of_one_gpu,
            30,
        ),
    ),
)
