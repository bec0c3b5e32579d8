"""What a cluster is typically asked for: by default, and learned from the claims of each queue.

Claims for about as much of devices are one class, which has the mean of the cpu and memory of their
pods, at most what nodes have beside as many devices: a claim that waits may ask for anything. The
classes of a queue weigh as much together as those of any other, however many claims it has: no
tenant says alone what is typical. Numbers are rounded, so that what is typical changes rarely.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from carina_dra.allocator.group import WHOLE
from controller.engine.model.wish import TypicalWish, Wish

_GIB: Final = 1 << 30
_TOTAL: Final = 1 << 20
"""The weight of a queue that has `_FULL` claims."""
_DEFAULT: Final = _TOTAL // 4
_FULL: Final = 64
_BITS: Final = 3
"""Of counts, and of mean amounts, that are not rounded."""
_SHARES: Final = (WHOLE // 4, WHOLE // 2, WHOLE - 1, WHOLE)
"""Parts of a device up to each of these are alike."""
_STEP: Final = WHOLE // 20
_EXACT, _MOST_DEVICES = 8, 64


class _Class(NamedTuple):
    """Claims that are alike."""

    devices: int
    """Exact up to 8, then rounded up to a power of two."""
    share: int
    """An index in `_SHARES`."""


@dataclass(slots=True)
class _Sum:
    """The claims of a class, added up."""

    count: int = 0
    cpu: int = 0
    memory: int = 0
    part: int = 0

    def change(self, wish: Wish, sign: int) -> None:
        """Adds a wish, or takes it off."""
        self.count += sign
        self.cpu += sign * wish.cpu
        self.memory += sign * wish.memory
        self.part += sign * wish.part


_KNOWN: Final[Mapping[_Class, tuple[int, Wish]]] = {
    _Class(1, 0): (44, Wish(4_700, 23 * _GIB, 1, WHOLE // 5)),
    _Class(1, 1): (183, Wish(7_900, 30 * _GIB, 1, 425_000)),
    _Class(1, 2): (281, Wish(4_900, 12 * _GIB, 1, 770_000)),
    _Class(1, 3): (482, Wish(11_300, 45 * _GIB, 1, WHOLE)),
    _Class(2, 3): (2, Wish(17_000, 79 * _GIB, 2, WHOLE)),
    _Class(4, 3): (2, Wish(38_000, 166 * _GIB, 4, WHOLE)),
    _Class(8, 3): (6, Wish(80_000, 331 * _GIB, 8, WHOLE)),
}
"""What a production cluster was asked for, in thousandths of its pods with GPUs, and their means:
Alibaba's trace `cluster-trace-gpu-v2023`."""


class Beside(NamedTuple):
    """What nodes with GPUs have beside each of these, on average."""

    cpu: int
    """In milli-CPU."""
    memory: int
    """In bytes."""

    @classmethod
    def of(cls, cpu: int, memory: int, gpus: int) -> "Beside":
        """What is beside each of some GPUs, rounded."""
        return cls(_rounded(cpu // gpus), _rounded(memory // gpus)) if gpus else _USUAL


_USUAL: Final = Beside(16_384, 79 * _GIB)
"""That of the production cluster: where there is less, wishes are taken to be smaller."""


class AskedWishes:
    """Counts the wishes of queues; what is typical follows from them, and not from their order."""

    def __init__(self) -> None:
        self._of_claim: dict[str, tuple[str, Wish]] = {}
        self._of_queue: dict[str, dict[_Class, _Sum]] = {}
        self._typical: dict[Beside, tuple[TypicalWish, ...]] = {}

    def put(self, claim: str, queue: str, wish: Wish | None) -> None:
        """Counts what a claim and its pod ask for, instead of what they did; None for nothing."""
        before = self._of_claim.get(claim)
        after = None if wish is None else (queue, wish)
        if before == after:
            return
        self._typical.clear()
        if before is not None:
            del self._of_claim[claim]
            self._change(*before, -1)
        if after is not None:
            self._of_claim[claim] = after
            self._change(*after, 1)

    def typical(self, beside: Beside = _USUAL) -> tuple[TypicalWish, ...]:
        """What the cluster is typically asked for; equal for equal claims.

        `beside` scales the default's cpu and memory down to what there is, and bounds what claims
        have of them.
        """
        known = self._typical.get(beside)
        if known is None:
            self._typical.clear()
            known = self._typical[beside] = tuple(self._weighed(beside))
        return known

    def _change(self, queue: str, wish: Wish, sign: int) -> None:
        of_class = self._of_queue.setdefault(queue, {})
        key = _class_of(wish)
        known = of_class.setdefault(key, _Sum())
        known.change(wish, sign)
        if not known.count:
            del of_class[key]
            if not of_class:
                del self._of_queue[queue]

    def _weighed(self, beside: Beside) -> Iterator[TypicalWish]:
        """By class: its weight, and the mean of the default's wishes and of those of queues."""
        default = sum(weight for weight, _ in _KNOWN.values())
        found = {
            key: [(_DEFAULT * weight // default, _scaled(wish, beside))]
            for key, (weight, wish) in _KNOWN.items()
        }
        for queue in sorted(self._of_queue):
            of_class = self._of_queue[queue]
            counts = {key: _rounded(asked.count) for key, asked in of_class.items()}
            total = sum(counts.values())
            weight = _TOTAL * min(total, _FULL) // _FULL
            for key, asked in of_class.items():
                found.setdefault(key, []).append(
                    (weight * counts[key] // total, _mean(key, asked, beside))
                )
        for key in sorted(found):
            of_all = found[key]
            weight = sum(part for part, _ in of_all)
            if weight:
                cpu = sum(part * wish.cpu for part, wish in of_all) // weight
                memory = sum(part * wish.memory for part, wish in of_all) // weight
                part = sum(part * wish.part for part, wish in of_all) // weight
                yield TypicalWish(
                    weight, Wish(_rounded(cpu), _rounded(memory), key.devices, _step(part))
                )


def _class_of(wish: Wish) -> _Class:
    devices = wish.devices
    if devices > _EXACT:
        devices = min(_MOST_DEVICES, 1 << (devices - 1).bit_length())
    share = next(index for index, most in enumerate(_SHARES) if wish.part <= most)
    return _Class(devices, share)


def _scaled(wish: Wish, beside: Beside) -> Wish:
    return wish._replace(
        cpu=wish.cpu * min(beside.cpu, _USUAL.cpu) // _USUAL.cpu,
        memory=wish.memory * min(beside.memory, _USUAL.memory) // _USUAL.memory,
    )


def _mean(key: _Class, asked: _Sum, beside: Beside) -> Wish:
    cpu = min(asked.cpu // asked.count, beside.cpu * key.devices)
    memory = min(asked.memory // asked.count, beside.memory * key.devices)
    part = asked.part // asked.count
    return Wish(_rounded(cpu), _rounded(memory), key.devices, part)


def _step(part: int) -> int:
    """A part, rounded, but to no whole device."""
    return part if part == WHOLE else min(WHOLE - 1, max(1, round(part / _STEP)) * _STEP)


def _rounded(number: int) -> int:
    """A number of which only the first bits are kept."""
    rest = max(0, number.bit_length() - _BITS)
    return number >> rest << rest
