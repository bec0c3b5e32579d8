"""`python -m simulation.kubernetes up` leaves a cluster with one node running, `down` ends it."""

import sys
import time

from simulation.kubernetes import binaries, build, cluster, debian, node, process, state


def up() -> None:
    """Builds missing programs, starts a cluster with a node and keeps it."""
    for running in state.kept():
        sys.exit(f"{_how_to_use(running)}\nThis cluster is still running: end it first.")
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
    """Ends what `up` left running."""
    running = state.kept()
    for directory in running:
        state.release(directory)
        print(f"Ended the cluster of {directory.path}")
    if not running:
        print("No cluster was left running")


def _how_to_use(directory: state.StateDirectory) -> str:
    return (
        f"export KUBECONFIG={directory.path}/kubeconfig  # to use it; kubectl is in "
        f"{binaries.control_plane().kubectl.parent}\n"
        "make cluster-down  # to end it"
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
