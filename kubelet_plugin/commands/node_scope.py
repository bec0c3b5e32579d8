"""The arguments of `carina doctor node`. Its checks are loaded when they are run."""

import os
from typing import Final

from carina_dra.cli.diagnosis import ArgumentGroup, CheckScope, in_module


def _add_arguments(group: ArgumentGroup) -> None:
    for setting, default, description in (
        ("host-root", "/", "folder with the host's proc, sys and dev [%(default)s]"),
        ("host-filesystem", "/", "the host's root folder [%(default)s]"),
        ("kubelet-root", "/var/lib/kubelet", "the kubelet's --root-dir [%(default)s]"),
        ("cdi-directory", "/var/run/cdi", "where the plugin writes CDI specs [%(default)s]"),
    ):
        name = setting.replace("-", "_")
        group.add_argument(
            f"--{setting}",
            # In the plugin's pod, the settings of the plugin are the defaults.
            default=os.environ.get(f"CARINA_{name.upper()}", default),
            metavar=name.rpartition("_")[2].upper(),
            help=description,
        )


NODE: Final = CheckScope(
    add_arguments=_add_arguments, checks=in_module("kubelet_plugin.commands.node_checks")
)
