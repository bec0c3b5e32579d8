"""What is on the GPUs besides the claim with which something happens."""

from dataclasses import dataclass

from simulation.nvml.state import GpuInstance
from tests.integration.mig.agreement import Expected, TwoGpus

PART = "gpu-0-mig-1g10gb-19-6"
PARTS = (PART, "gpu-0-mig-2g20gb-14-4")
"""Two partitions of GPU 0 for one claim."""
WHOLE = "gpu-0"
OF_ADMIN = "gpu-0-mig-1g10gb-19-1"
"""Where the administrator has an instance."""
_NEIGHBOUR = "gpu-0-mig-1g10gb-19-0"


@dataclass(frozen=True)
class Before(Expected):
    """Expected of the node before something happens with the claim."""

    def with_claim(self, claim: str, *devices: str) -> Expected:
        """What is expected with a further claim."""
        return Expected({**self.claims, claim: devices}, self.admins, self.admin_modes)


@dataclass(frozen=True)
class Situation:
    """What else is on GPU 0."""

    name: str
    of_claim: bool = False
    of_admin: bool = False

    def __str__(self) -> str:
        return self.name

    def begin(self, node: TwoGpus) -> Before:
        """Brings it about; the plugin knows the GPUs as they then are."""
        admins: dict[int, tuple[GpuInstance, ...]] = {}
        claims: dict[str, tuple[str, ...]] = {}
        if self.of_admin:
            node.admin_switches(0, on=True)
            admins[0] = (node.admin_makes(0, 19, 1, 1),)
        node.look()
        node.repair()
        if self.of_claim:
            node.prepare("neighbour", _NEIGHBOUR)
            claims["neighbour"] = (_NEIGHBOUR,)
        return Before(claims, admins)


SITUATIONS = (
    Situation("alone"),
    Situation("beside a claim", of_claim=True),
    Situation("beside an administrator", of_admin=True),
    Situation("beside both", of_claim=True, of_admin=True),
)
