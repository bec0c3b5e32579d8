"""What a part is."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from gpu_proof.bench import Bench
from gpu_proof.finding import ProofFinding, ProofStatement
from gpu_proof.need import Need


@dataclass(frozen=True, slots=True)
class ProofPart:
    """A part of the proof, which is run by itself."""

    name: str
    seconds: float
    """After which it is ended."""
    needs: tuple[Need, ...]
    statements: tuple[ProofStatement, ...]
    run: Callable[[Bench], Iterator[ProofFinding]]
    """Yields what it finds as it finds it. What it starts, it ends, however it is left."""
