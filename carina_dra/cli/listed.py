"""The subcommands of `carina` in this package. What they need is loaded when they are run."""

from typing import Final

from carina_dra.cli.command import in_module

COMPLETION: Final = in_module(
    "carina_dra.cli.completion",
    "prints what a shell needs to complete command lines",
)
DOCTOR: Final = in_module(
    "carina_dra.cli.doctor",
    "checks what Carina needs in the cluster or on a node, and says what to do",
)
ALLOCATE: Final = in_module(
    "carina_dra.cli.allocate",
    "shows the devices that claims would get, or why they would not",
)
