"""The hardware of a simulated node, which does not change while it runs: GPU models and slots.

Models and node profiles are YAML files beside this module, one per product, with the values that
the product's driver reports.
"""

from functools import cache
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import yaml
from pydantic import ConfigDict, Field, TypeAdapter
from pydantic.dataclasses import dataclass

__all__ = [
    "Bridged",
    "Fabric",
    "GpuModel",
    "Hardware",
    "MigProfile",
    "Slot",
    "Switched",
    "Unlinked",
    "load_profile",
    "profile_names",
]

_HERE = Path(__file__).parent
_STRICT = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True, config=_STRICT)
class MigProfile:
    """A row of `nvidia-smi mig -lgip`, and its placements."""

    index: int
    """NVML_GPU_INSTANCE_PROFILE_*."""
    id: int
    name: str
    slices: int
    instances: int
    multiprocessors: int
    copy_engines: int
    decoders: int
    encoders: int
    jpeg_engines: int
    ofa_engines: int
    memory_mib: int
    starts: tuple[int, ...]
    size: int
    """Size of its placements, in memory slices."""


@dataclass(frozen=True, slots=True, config=_STRICT)
class GpuModel:
    """A product, as its driver describes it."""

    name: str
    brand: Literal["nvidia", "tesla"]
    architecture: Literal["turing", "ampere", "ada", "hopper", "blackwell"]
    compute_capability: tuple[int, int]
    memory_mib: int
    pci_device_id: int
    pci_subsystem_id: int
    addressing_mode: Literal["none", "hmm", "ats"] | None
    nvlink_version: int
    mig_profiles: tuple[MigProfile, ...]

    @property
    def changes_mig_mode_at_once(self) -> bool:
        """Whether MIG mode changes without a GPU reset: from Hopper on."""
        return self.architecture in {"hopper", "blackwell"}


@dataclass(frozen=True, slots=True, config=_STRICT)
class Slot:
    """A place for a GPU on the board."""

    minor: int
    model: str
    pci: str
    """PCI address as the kernel writes it: dddd:bb:dd.f."""
    path: str
    """Path of the parent of the PCI function below /sys/devices."""
    numa_node: int


@dataclass(frozen=True, slots=True, config=_STRICT)
class Switched:
    """All GPUs have links to NVSwitches, evenly distributed over them."""

    kind: Literal["switched"]
    links: int
    switches: tuple[str, ...]
    """PCI addresses; empty where the host cannot see the switches."""


@dataclass(frozen=True, slots=True, config=_STRICT)
class Bridged:
    """The GPUs of a group have links to each other; members are minor numbers."""

    kind: Literal["bridged"]
    links_per_peer: int
    groups: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, config=_STRICT)
class Unlinked:
    """No NVLink."""

    kind: Literal["none"]


NvLink: TypeAlias = Annotated[Switched | Bridged | Unlinked, Field(discriminator="kind")]


@dataclass(frozen=True, slots=True, config=_STRICT)
class Fabric:
    """The node's place in an NVLink fabric, as the fabric manager sets it."""

    cluster: str
    clique: int


@dataclass(frozen=True, slots=True, config=_STRICT)
class Hardware:
    """A board, its GPU models and its driver version."""

    product: str
    driver_version: str
    cuda_version: tuple[int, int]
    nvlink: NvLink
    fabric: Fabric | None
    missing_symbols: frozenset[str]
    """NVML functions that are newer than this driver."""
    gpus: tuple[Slot, ...]
    models: dict[str, GpuModel]

    def slot(self, minor: int) -> Slot:
        """The slot of a minor number. Raises KeyError naming it."""
        for slot in self.gpus:
            if slot.minor == minor:
                return slot
        raise KeyError(f"{self.product} has no GPU with minor number {minor}")

    def model(self, minor: int) -> GpuModel:
        """The product in a slot."""
        return self.models[self.slot(minor).model]


HARDWARE: TypeAdapter[Hardware] = TypeAdapter(Hardware)
_MODEL: TypeAdapter[GpuModel] = TypeAdapter(GpuModel)


def profile_names() -> tuple[str, ...]:
    """The names of all profiles."""
    return tuple(sorted(path.stem for path in (_HERE / "profiles").glob("*.yaml")))


@cache
def load_profile(name: str) -> Hardware:
    """Reads a node profile and the models it names. Raises KeyError for an unknown name."""
    path = _HERE / "profiles" / f"{name}.yaml"
    if not path.exists():
        raise KeyError(f"no profile {name!r}; there are {', '.join(profile_names())}")
    board = yaml.safe_load(path.read_text())
    models = {slot["model"]: _load_model(slot["model"]) for slot in board["gpus"]}
    return HARDWARE.validate_python({**board, "models": models})


def _load_model(name: str) -> GpuModel:
    return _MODEL.validate_python(
        yaml.safe_load((_HERE / "models" / f"{name}.yaml").read_text(encoding="utf-8"))
    )
