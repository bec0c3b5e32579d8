"""The process of a part: prints what it finds, a JSON object a line, as it finds it.

It is a process of its own, since a call of a driver may never return. Without a part, it says what
the machine is.
"""

import sys
from collections.abc import Iterator, Sequence
from typing import Final

from pydantic import TypeAdapter

from carina_dra.nvidia.nvml_library import NvmlLibrary
from gpu_proof import own_cgroups
from gpu_proof.bench import Bench, ProofPlace
from gpu_proof.finding import FINDING, ProofFinding, untried
from gpu_proof.machine import machine_facts
from gpu_proof.need import found_gpu, missing
from gpu_proof.part import ProofPart
from gpu_proof.parts.listed import PARTS
from kubelet_plugin.inventory.gpu import ObservedGpu

PLACE: Final = TypeAdapter(ProofPlace)


def main(arguments: Sequence[str]) -> None:
    """Runs the part with this name at this place: `NAME PLACE`, or `PLACE` for the machine."""
    *names, text = arguments
    place = PLACE.validate_json(text)
    if place.cgroup is not None:
        own_cgroups.enter(place.cgroup)
    for finding in _findings(place, [PARTS[name] for name in names]):
        print(FINDING.dump_json(finding).decode(), flush=True)


def _findings(place: ProofPlace, parts: Sequence[ProofPart]) -> Iterator[ProofFinding]:
    library = place.library
    gpu = found_gpu(place.reader(library).read(), place.gpu)
    try:
        if not parts:
            yield from machine_facts(gpu, cgroups=place.cgroup is not None)
        for part in parts:
            yield from _run(part, place, library, gpu)
    finally:
        library.close()


def _run(
    part: ProofPart, place: ProofPlace, library: NvmlLibrary, gpu: ObservedGpu | str
) -> Iterator[ProofFinding]:
    lacking = (missing(need, gpu, cgroups=place.cgroup is not None) for need in part.needs)
    reason = next((why for why in lacking if why is not None), None)
    if reason is not None or isinstance(gpu, str):
        yield from untried(part.statements, reason or str(gpu))
        return
    yield from part.run(Bench(place, library, gpu))


if __name__ == "__main__":
    main(sys.argv[1:])
