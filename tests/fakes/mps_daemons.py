"""MPS daemons that a test has left on this machine."""

from pathlib import Path

from sharing.mps import folder
from sharing.mps.cgroups import DaemonCgroup, Hierarchies
from sharing.mps.folder import DaemonFolder


def remove_daemons(top: Path, driver: str) -> None:
    """Ends all whose folders are in a folder, and removes what they leave."""
    for name in folder.names(top):
        cgroup = DaemonCgroup(Hierarchies.find(Path("/sys/fs/cgroup")), driver, name)
        cgroup.kill()
        assert cgroup.emptied(30)
        cgroup.remove()
        DaemonFolder(top, name).remove()
