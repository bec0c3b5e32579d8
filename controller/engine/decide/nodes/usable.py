"""How much of a node's devices can still be given out, with the cpu and memory beside them.

A node whose cpu is used up has devices that nobody can use. The rule follows "Beware of
Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent" (USENIX ATC
2023): a node is better the less it loses for what the cluster is typically asked for. There, what
is free is lost for a wish if the node has no room for it; here, it is worth what the node could
give out if nothing but such wishes came.
"""

from bisect import insort
from collections.abc import Sequence
from operator import neg
from typing import Final, NamedTuple

from carina_dra.allocator.group import WHOLE
from controller.engine.model.wish import TypicalWish, Wish

_FULLNESS: Final = 0.05
"""What it costs, in devices, to use a free node; the fuller one of equal nodes comes first."""
_RARITY: Final = 0.5
"""What it costs more, by device, to use one of a model of which there are very few."""


class Left(NamedTuple):
    """What is free of a node, or what it has."""

    cpu: int
    memory: int
    pods: int
    parts: tuple[int, ...]
    """Of each device, in millionths; the most first."""


def usable(left: Left, wishes: Sequence[TypicalWish]) -> float:
    """How many devices a node can still give out, the mean over the wishes."""
    total = sum(weight for weight, _ in wishes)
    whole = left.parts.count(WHOLE)
    free = 0.0
    for weight, (cpu, memory, devices, part) in wishes:
        most = float(left.pods)
        if cpu:
            most = min(most, left.cpu / cpu)
        if memory:
            most = min(most, left.memory / memory)
        if part < WHOLE:
            fitting = [free_part for free_part in left.parts if free_part >= part]
            times = sum(free_part // part for free_part in fitting)
            amount = sum(fitting)
        else:
            times = whole // devices
            amount = times * devices * WHOLE
        if most > 0 and times:
            free += weight * amount * min(1.0, most / times)
    return free / (total * WHOLE) if total else 0.0


def possible(wishes: Sequence[TypicalWish], *, in_parts: bool, most: int) -> Sequence[TypicalWish]:
    """The wishes that a cluster can meet, of which GPUs can be had `in_parts` or not.

    `most` is the number of GPUs of the largest node.
    """
    return [
        one for one in wishes if (one.wish.devices <= most if one.wish.part == WHOLE else in_parts)
    ]


def after(left: Left, wish: Wish, *, breaking: bool = False) -> Left | None:
    """What is left after a wish has been met; None if there is no room for it.

    Parts are taken of the devices that are used most, or of free ones (`breaking`).
    """
    parts = _broken(left.parts, wish) if breaking else _filled(left.parts, wish)
    if parts is None:
        return None
    rest = Left(left.cpu - wish.cpu, left.memory - wish.memory, left.pods - 1, parts)
    if (rest.cpu < 0 and wish.cpu) or (rest.memory < 0 and wish.memory) or rest.pods < 0:
        return None
    return rest


def _filled(parts: Sequence[int], wish: Wish) -> tuple[int, ...] | None:
    """What is left of devices of which the most used ones that suffice are taken first."""
    wanted, left = wish.devices, list[int]()
    for part in reversed(parts):
        times = min(wanted, part // wish.part)
        wanted -= times
        left.append(part - times * wish.part)
    return None if wanted else tuple(sorted(left, reverse=True))


def _broken(parts: Sequence[int], wish: Wish) -> tuple[int, ...] | None:
    """What is left of devices of which the freest ones are taken first."""
    if wish.devices > sum(part // wish.part for part in parts):
        return None
    left = list(parts)
    for _ in range(wish.devices):
        freest = left.pop(0)
        insort(left, freest - wish.part, key=neg)
    return tuple(left)


def loss(lost: float, before: Left, rest: Left, node: Left, abundance: float) -> float:
    """What it costs, in devices, if of what was free `before` on a node, the `rest` remains.

    `lost` is how much less is usable, what is given out among it. It costs more where cpu or memory
    run short: by how much smaller a part of them is free than of the devices. `abundance` is the
    part of the cluster's devices that are of the model of the node's.
    """
    given = (sum(before.parts) - sum(rest.parts)) / WHOLE
    free = sum(rest.parts) / sum(node.parts) if node.parts else 0.0
    short = max(0.0, free - _free(rest.cpu, node.cpu), free - _free(rest.memory, node.memory))
    return lost + short + _FULLNESS * free + _RARITY * given * (1 - abundance)


def _free(amount: int, whole: int) -> float:
    return max(0, amount) / whole if whole > 0 else 0.0
