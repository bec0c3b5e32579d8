"""From the cgroups of a process to its pod.

The kubelet names the cgroup of a pod by its QoS class and its UID, below a folder `kubepods`
(kubernetes, pkg/kubelet/cm: `GetPodContainerName`, `CgroupName.ToSystemd` and `ToCgroupfs`), and
the container runtime names those of its containers by their IDs. A process can change none of
this, unless it is root on the host: it can only make cgroups within its own. So the outermost pod
counts, and nothing outside of the kubelet's own folder does.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

_KUBEPODS: Final = "kubepods"
_QOS: Final = ("burstable", "besteffort")
"""A Guaranteed pod has no class in its path."""
_UID: Final = r"(?P<uid>[0-9A-Za-z](?:[-_0-9A-Za-z]{0,126}[0-9A-Za-z])?)"
_CONTAINER: Final = re.compile(
    r"(?!crio-conmon-)(?:[a-z]+(?:-[a-z]+)*-)?(?P<id>[0-9a-f]{64})(?:\.scope)?"
)
"""`cri-containerd-<id>.scope`, `crio-<id>.scope` or `docker-<id>.scope` with systemd; `<id>` or
`crio-<id>` without. `crio-conmon-<id>` is of CRI-O, which watches the container by it."""


@dataclass(frozen=True, slots=True)
class PodCgroup:
    """Where a process belongs."""

    pod_uid: str
    container_id: str | None
    """None if the process is of no container, such as one that an administrator has put there."""


@dataclass(frozen=True, slots=True)
class KubepodsFolder:
    """The folder of the cgroups of all pods, such as `/kubepods` or `/kubepods.slice`."""

    path: str

    @property
    def _parts(self) -> Sequence[str]:
        return _components(self.path)

    def pod(self, path: str) -> PodCgroup | None:
        """Returns the pod of a cgroup by its path; None if it is of none."""
        own, parts = self._parts, _components(path)
        if parts[: len(own)] != own:
            return None
        return _pod(own[-1], parts[len(own) :])


DEFAULT_FOLDERS: Final = (KubepodsFolder("/kubepods"), KubepodsFolder("/kubepods.slice"))
"""Those of a kubelet whose cgroupRoot is not set, without and with systemd."""


def paths(text: str) -> Iterator[str]:
    """Yields the paths in a file /proc/<pid>/cgroup: one with cgroup v2, several with v1.

    Its lines are `hierarchy-ID:controller-list:cgroup-path` (cgroups(7)). Of the characters that
    can end a line, a cgroup's name lacks the line feed only (Linux, cgroup_mkdir).
    """
    for line in text.split("\n"):
        match line.split(":", 2):
            case [_, _, path] if path.startswith("/"):
                yield path
            case _:
                pass


def pod_of(text: str, folders: Sequence[KubepodsFolder]) -> PodCgroup | None:
    """Returns the pod of a process, whose file /proc/<pid>/cgroup has this text.

    With cgroup v1, its hierarchies have to agree.
    """
    found = [
        pod for path in paths(text) for folder in folders if (pod := folder.pod(path)) is not None
    ]
    if len({pod.pod_uid for pod in found}) != 1:
        return None
    return next((pod for pod in found if pod.container_id is not None), found[0])


def is_below(text: str, group: str) -> bool:
    """Whether a process with this text is in a cgroup below that of a name, at the root."""
    return any(_components(path)[:1] == [group] for path in paths(text))


def kubepods_folder(text: str) -> KubepodsFolder | None:
    """Returns the kubelet's folder by the cgroups of a process that is known to be of a pod.

    So it is right where the kubelet has a cgroupRoot, or the node is a container itself. None if
    the process is of no pod.
    """
    for path in paths(text):
        parts = _components(path)
        for index, part in enumerate(parts):
            if _is_kubepods(part) and _pod(part, parts[index + 1 :]) is not None:
                return KubepodsFolder("/" + "/".join(parts[: index + 1]))
    return None


def is_below_another_root(text: str) -> bool:
    """Whether these paths are seen from a cgroup namespace that does not have the process.

    The kernel then writes them relative to the root of that namespace (cgroup_namespaces(7)).
    """
    return any(".." in _components(path) for path in paths(text))


def _components(path: str) -> Sequence[str]:
    return [part for part in path.split("/") if part]


def _is_kubepods(part: str) -> bool:
    return part in (_KUBEPODS, f"{_KUBEPODS}.slice") or part.endswith(f"-{_KUBEPODS}.slice")


def _pod(kubepods: str, below: Sequence[str]) -> PodCgroup | None:
    """The pod of a path below the folder of that name, whose name says who manages cgroups."""
    systemd = kubepods.endswith(".slice")
    stem = kubepods.removesuffix(".slice")
    for qos in (*_QOS, None):
        if systemd:
            stem_of_class = stem if qos is None else f"{stem}-{qos}"
            folders = [] if qos is None else [f"{stem_of_class}.slice"]
            pattern = rf"{re.escape(stem_of_class)}-pod{_UID}\.slice"
        else:
            folders = [] if qos is None else [qos]
            pattern = rf"pod{_UID}"
        rest = below[len(folders) :]
        if list(below[: len(folders)]) != folders or not rest:
            continue
        if match := re.fullmatch(pattern, rest[0]):
            return PodCgroup(match["uid"].replace("_", "-"), _container(rest[1:]))
    return None


def _container(below: Sequence[str]) -> str | None:
    match = _CONTAINER.fullmatch(below[0]) if below else None
    return match["id"] if match else None
