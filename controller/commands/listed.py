"""The subcommands of `carina` in this package. What they need is loaded when they are run."""

from typing import Final

from carina_dra.cli.command import in_module

APPLY: Final = in_module(
    "controller.commands.apply", "makes the Queues of a file those of the cluster"
)
FREE: Final = in_module(
    "controller.commands.free",
    "shows which devices are free, and how many pods they would take now",
)
NODE: Final = in_module(
    "controller.commands.node",
    "has a node release the NVIDIA driver, such as to replace it, and take it up again",
)
QUEUE: Final = in_module(
    "controller.commands.queue",
    "shows what each queue has, may have and waits for; stops and resumes queues",
)
SIMULATE: Final = in_module(
    "controller.commands.simulate",
    "simulates a scenario, or what follows from a snapshot, in virtual time",
)
SNAPSHOT: Final = in_module(
    "controller.commands.snapshot",
    "writes the cluster as a snapshot, without environments, annotations and parameters",
)
UNINSTALL: Final = in_module(
    "controller.commands.uninstall",
    "removes what the controller leaves on pods and claims, before its manifests",
)
WHY: Final = in_module(
    "controller.commands.why",
    "says why a group waits, and what would help",
)
