"""All parts, in the order in which they run."""

from typing import Final

from gpu_proof.part import ProofPart
from gpu_proof.parts import kernel_limits, mps, nvml, reserved, watchdog

PARTS: Final[dict[str, ProofPart]] = {
    part.name: part
    for part in (nvml.PART, reserved.PART, kernel_limits.PART, mps.PART, watchdog.PART)
}
