"""`python -m simulation.kubernetes up` starts a cluster with one node, and `down` stops it."""

import sys
import time

from simulation.kubernetes import binaries, build, cluster, debian, node, process, state


def up() -> None:
    """Builds missing binaries, and starts a cluster with a node that outlives this process."""
    for running in state.kept():
        sys.exit(f"{_how_to_use(running)}\nThis cluster is already running; stop it first.")
    reason = binaries.why_no_node()
    if reason is not None:
        sys.exit(reason)
    debian.install_missing()
    build.build((*binaries.control_plane_releases(), *binaries.node_releases()))
    started = time.monotonic()
    with cluster.running_cluster() as running_cluster:
        running_node = node.start(running_cluster)
        running_cluster.state.keep()
    print(f"Ready after {time.monotonic() - started:.0f} s: node {running_node.name!r}.")
    print(f"  kubelet root  {running_node.kubelet.root}")
    print(f"  CDI specs     {running_node.cdi_folder}")
    print(f"  logs          {running_cluster.state.logs}")
    print(_how_to_use(running_cluster.state))


def down() -> None:
    """Stops the clusters that `up` started."""
    running = state.kept()
    for directory in running:
        state.release(directory)
        print(f"Stopped the cluster in {directory.path}")
    if not running:
        print("No cluster is running")


def _how_to_use(directory: state.StateDirectory) -> str:
    return (
        f"export KUBECONFIG={directory.path}/kubeconfig  # to use it; kubectl is in "
        f"{binaries.control_plane().kubectl.parent}\n"
        "make cluster-down  # to stop it"
    )


def main() -> None:
    """Runs the command."""
    commands = {"up": up, "down": down}
    if len(sys.argv) != 2 or sys.argv[1] not in commands:
        sys.exit("usage: python -m simulation.kubernetes up|down")
    try:
        commands[sys.argv[1]]()
    except (
        binaries.BinariesMissingError,
        build.BuildError,
        debian.PackagesMissingError,
        process.ComponentDiedError,
        process.NotReachedError,
        ValueError,
    ) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
