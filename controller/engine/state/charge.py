"""What a claim counts in accounts: amounts, and parts of GPUs that count once for one GPU."""

from dataclasses import dataclass
from typing import NamedTuple

from carina_dra.placement.cluster.gpu import GpuId
from controller.engine.model.resource import Amounts


class GpuPart(NamedTuple):
    """A part of a physical GPU that a claim has."""

    gpu: GpuId
    part: int
    columns: tuple[int, ...]
    """The resources that add up parts of such GPUs, by their place in the table."""
    counted: frozenset[int]
    """All resources that count the device, such as its memory, too."""
    named: frozenset[int]
    """All resources that are about GPUs."""


@dataclass(frozen=True, slots=True)
class Charge:
    """What a claim counts."""

    amounts: Amounts
    """Without the parts of GPUs, of which an account has at most a whole one for each GPU."""
    gpus: tuple[GpuPart, ...] = ()

    def apart(self, claim: str) -> "Charge":
        """The same of GPUs that nobody else has."""
        gpus = (
            held._replace(gpu=held.gpu._replace(name=f"{held.gpu.name} of {claim} {index}"))
            for index, held in enumerate(self.gpus)
        )
        return Charge(self.amounts, tuple(gpus))
