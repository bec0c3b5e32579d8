"""Nodes whose GPUs are partitioned with MIG, in use at random."""

from collections.abc import Iterator
from random import Random
from typing import Final

from tests.benchmarks.claims import ATTRIBUTES, NUMA, match, pod, request
from tests.benchmarks.fleet import DRIVER, Asking, Fleet, Object, Pod, Question, Scenario
from tests.benchmarks.gpus import MEMORY_SLICES, PER_NODE, PLACEMENTS, counter_set, partitions
from tests.benchmarks.pool import holder, node_name, nodes, slices_of

_SEED: Final = 3
_IN_USE: Final = 0.25
"""How likely a placement is tried, in random order, when a GPU is filled."""
_PROFILES: Final = ("1g.10gb", "2g.20gb", "3g.40gb", "1g.20gb", "4g.40gb")


def make(number: int) -> Fleet:
    """Eight H100 a node, each with its 18 placements and itself as devices."""

    def slices() -> Iterator[Object]:
        counter_sets = [counter_set(gpu) for gpu in range(PER_NODE)]
        for node in range(number):
            devices = [each for gpu in range(PER_NODE) for each in partitions(node, gpu)]
            yield from slices_of(node, devices, counter_sets)

    def in_use() -> Iterator[Object]:
        random = Random(_SEED)
        for node in range(number):
            for gpu in range(PER_NODE):
                free = set(range(MEMORY_SLICES))
                for placement in random.sample(PLACEMENTS, len(PLACEMENTS)):
                    if random.random() < _IN_USE and free.issuperset(placement.slots):
                        free.difference_update(placement.slots)
                        yield holder(node_name(node), placement.name_on(gpu))

    return Fleet(nodes(number), slices, in_use)


def partition(profile: str, count: int = 1, *, kind: int = 0) -> Pod:
    """Partitions of a profile; another `kind` is another selector with the same meaning."""
    always = f" && {ATTRIBUTES}.type != 'kind-{kind}'" if kind else ""
    selector = f'{ATTRIBUTES}.type == "mig" && {ATTRIBUTES}.profile == "{profile}"{always}'
    return pod(request(selector, count))


def one(_: int) -> Pod:
    """The smallest partition."""
    return partition("1g.10gb")


def profile_of(number: int) -> str:
    """A profile for each number, in turn."""
    return _PROFILES[number % len(_PROFILES)]


def _four_of_numa(number: int) -> Pod:
    selector = (
        f"{ATTRIBUTES}.type == 'mig' && {ATTRIBUTES}.profile == '{profile_of(number)}' "
        f"&& {ATTRIBUTES}.uuid != '{number}'"
    )
    return pod(request(selector, 4), constraints=(match(NUMA),))


def _too_many_of_one_gpu(number: int) -> Pod:
    """Partitions of one GPU of which each fits, and any two; a third does not."""
    return _of_one_gpu(number, "3g.40gb", "3g.40gb", "1g.10gb")


def _overlapping_on_one_gpu(number: int) -> Pod:
    """Partitions of one GPU for which its memory slices suffice, but not their places."""
    return _of_one_gpu(number, "4g.40gb", "2g.20gb", "2g.20gb")


def _of_one_gpu(number: int, *profiles: str) -> Pod:
    requests = (
        request(
            f'{ATTRIBUTES}.type == "mig" && {ATTRIBUTES}.profile == "{profile}" '
            f'&& {ATTRIBUTES}.uuid != "{number}"',
            name=f"part-{index}",
        )
        for index, profile in enumerate(profiles)
    )
    return pod(*requests, constraints=(match(f"{DRIVER}/uuid"),))


SCENARIO: Final = Scenario(
    name="mig",
    about="{nodes} nodes of 8 H100 with 19 devices each, their partitions in use at random",
    nodes=1000,
    make=make,
    one=one,
    questions=(
        Question(
            "1 partition, new kind",
            Asking.NEW,
            lambda number: partition(profile_of(number), kind=1 + number),
            50,
        ),
        Question("1 partition, like", Asking.LIKE, one, 1, times=300),
        Question(
            "1 partition of a profile that none has, new kind",
            Asking.NEW,
            lambda number: partition(f"{5 + number}g.50gb"),
            50,
        ),
        Question(
            "8 free GPUs of a node, which none has, new kind",
            Asking.NEW,
            lambda number: partition("7g.80gb", 8, kind=1 + number),
            50,
        ),
        Question(
            "3 partitions of a GPU, of which any two fit, new kind",
            Asking.NEW,
            _too_many_of_one_gpu,
            50,
        ),
        Question(
            "3 partitions of a GPU whose places overlap, new kind",
            Asking.NEW,
            _overlapping_on_one_gpu,
            50,
        ),
        Question("4 partitions of a NUMA node, new kind", Asking.NEW, _four_of_numa, 50),
    ),
    nodes_in_tests=2,
    churn=lambda number: partition(profile_of(number)),
)
