"""The cgroup of a pod, below the root of the host's cgroups.

The kubelet makes it before it asks for the pod's claims to be prepared. Its path has the names that
the kubelet's cgroup manager gives (kubernetes/pkg/kubelet/cm/cgroup_manager_linux.go): with the
driver `cgroupfs`, `kubepods/<qos>/pod<uid>`; with the driver `systemd`,
`kubepods.slice/kubepods-<qos>.slice/kubepods-<qos>-pod<uid>.slice`. Pods of the QoS class
Guaranteed have no level `<qos>`. The kubelet's setting cgroupRoot may put groups before `kubepods`.

Processes of a pod can make cgroups below the pod's own, of any name. So nothing is looked for
there.
"""

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

_QOS: Final = ("", "burstable", "besteffort")
_KUBEPODS: Final = "kubepods"
_SLICE: Final = ".slice"
_UID: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?")
_DEEPEST_ROOT: Final = 2
"""Groups before `kubepods` at most. Deeper ones may be delegated to users of the host."""
_MOST_GROUPS: Final = 1000
"""Groups of a level in which `kubepods` is looked for at most."""


def pod_cgroup(root: Path, uid: str) -> Path | None:
    """Returns the cgroup of the pod with this UID; None if there is none.

    Raises:
        OSError: the root cannot be read.
    """
    if not _UID.fullmatch(uid):
        return None
    candidates = (path for top in _tops(root) for qos in _QOS for path in (_in(top, qos, uid),))
    return next((path for path in candidates if path.is_dir()), None)


def _tops(root: Path) -> Iterator[Path]:
    """Returns the groups of all pods, the nearest to the root first."""
    level = [root]
    for _ in range(_DEEPEST_ROOT + 1):
        found = [top for parent in level for top in _of_parent(root, parent) if top.is_dir()]
        yield from found
        if found:
            return
        groups = (group for parent in level for group in _groups(root, parent))
        level = list(islice(groups, _MOST_GROUPS))


def _of_parent(root: Path, parent: Path) -> tuple[Path, ...]:
    if parent == root:
        return parent / _KUBEPODS, parent / f"{_KUBEPODS}{_SLICE}"
    if parent.name.endswith(_SLICE):
        return (parent / f"{parent.name.removesuffix(_SLICE)}-{_KUBEPODS}{_SLICE}",)
    return (parent / _KUBEPODS,)


def _groups(root: Path, parent: Path) -> list[Path]:
    try:
        found = sorted(parent.iterdir())
    except OSError:  # it was removed meanwhile
        if parent == root:
            raise
        return []
    return [path for path in found if path.is_dir() and not path.is_symlink()]


def _in(top: Path, qos: str, uid: str) -> Path:
    if not top.name.endswith(_SLICE):
        return top / qos / f"pod{uid}"
    stem, folder = top.name.removesuffix(_SLICE), top
    if qos:
        stem = f"{stem}-{qos}"
        folder = top / f"{stem}{_SLICE}"
    return folder / f"{stem}-pod{uid.replace('-', '_')}{_SLICE}"
