"""The subcommands of `carina` in this package. What they need is loaded when they are run."""

from typing import Final

from carina_dra.cli.command import in_module

HEALTH: Final = in_module(
    "kubelet_plugin.commands.health",
    "shows which GPUs of the cluster have a problem, and what to do; clears faults",
)
INVENTORY: Final = in_module(
    "kubelet_plugin.commands.inventory",
    "shows this machine's GPUs and the ResourceSlices that the plugin would publish",
)
TOP: Final = in_module(
    "kubelet_plugin.commands.top",
    "shows what GPUs and their shares use, of what they are given",
)
