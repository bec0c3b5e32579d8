"""The file of the kubelet's record of claims, read and never written.

The kubelet replaces the file by renaming a temporary one over it (pkg/kubelet/util/store), so each
read sees one whole state. The folder has to be visible here, not the file alone: a mount of the
file would go on showing the replaced one. It must be the root of the kubelet that has registered
the plugin, as it is where both follow from the setting `kubelet_root`.
"""

from pathlib import Path

from kubelet_plugin.claims.kubelet_record import (
    FILE_NAME,
    KubeletRecord,
    KubeletRecordError,
    Unreadable,
    parse,
)


class KubeletRecordFile:
    """The record in a kubelet's root folder."""

    def __init__(self, kubelet_root: Path) -> None:
        """`kubelet_root` is the folder, as this process sees it."""
        self._path = kubelet_root / FILE_NAME

    @property
    def path(self) -> Path:
        """Where the file is."""
        return self._path

    def read(self) -> KubeletRecord | Unreadable:
        """Gives what the kubelet has recorded by now.

        Read it under the node's lock, right before a claim is unprepared unasked: the kubelet
        records a claim before it asks for it, so a call that comes later waits for the lock and
        prepares the claim again.

        A missing file is unreadable: a kubelet with DRA creates it when it starts, so there is none
        where its root is elsewhere or is not mounted, or where somebody removed the file while the
        kubelet still knows its claims.
        """
        try:
            return parse(self._path.read_bytes())
        except FileNotFoundError:
            return Unreadable(
                f"the kubelet's record {self._path} does not exist; set kubelet_root to "
                "the kubelet's --root-dir, and mount that folder into the plugin's container"
            )
        except (OSError, KubeletRecordError) as error:
            return Unreadable(f"the kubelet's record {self._path} cannot be used: {error}")
