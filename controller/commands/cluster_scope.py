"""The arguments of `carina doctor` in a cluster. Its checks are loaded when they are run."""

from typing import Final

from carina_dra.cli.diagnosis import ArgumentGroup, CheckScope, in_module


def _add_arguments(group: ArgumentGroup) -> None:
    for option, default, what in (
        ("--namespace", "carina-system", "namespace of Carina"),
        ("--plugin", "carina-kubelet-plugin", "name of the DaemonSet and its ServiceAccount"),
        (
            "--controller-name",
            "carina-controller",
            "name of the Deployment, its ServiceAccount and its Lease",
        ),
    ):
        group.add_argument(option, default=default, metavar="NAME", help=f"{what} [%(default)s]")


CLUSTER: Final = CheckScope(
    add_arguments=_add_arguments, checks=in_module("controller.commands.cluster_checks")
)
