"""The file with the kubelet's record of claims. It is read and never written.

The kubelet replaces the file by renaming a temporary one over it (pkg/kubelet/util/store), so each
read sees a consistent state. Mount the folder, not the file: a mounted file would remain the
replaced one. The folder must be the root of the kubelet that registered the plugin; this holds
because both paths follow from the setting `kubelet_root`.
"""

from pathlib import Path

from kubelet_plugin.claims.kubelet_record import (
    FILE_NAME,
    KubeletRecord,
    KubeletRecordError,
    UnreadableRecord,
    parse_record,
)


class KubeletRecordFile:
    """The record in a kubelet's root folder."""

    def __init__(self, kubelet_root: Path) -> None:
        """`kubelet_root` is the folder, as this process sees it."""
        self._path = kubelet_root / FILE_NAME

    @property
    def path(self) -> Path:
        """Path of the file."""
        return self._path

    def read(self) -> KubeletRecord | UnreadableRecord:
        """Returns the kubelet's current record.

        Hold the node's lock while reading it before a claim is unprepared without a call. The
        kubelet records a claim before it calls the plugin for it, so a call that comes later waits
        for the lock and prepares the claim again.

        A missing file is an unreadable record: a kubelet with DRA creates the file when it starts.
        If it is missing, the kubelet's root is a different or an unmounted folder, or the file was
        deleted while the kubelet still holds claims.
        """
        try:
            return parse_record(self._path.read_bytes())
        except FileNotFoundError:
            return UnreadableRecord(
                f"the kubelet's record {self._path} does not exist; set kubelet_root to "
                "the kubelet's --root-dir, and mount that folder into the plugin's container"
            )
        except (OSError, KubeletRecordError) as error:
            return UnreadableRecord(f"the kubelet's record {self._path} cannot be used: {error}")
