"""The file that keeps the phase of a release for the next plugin process."""

import logging
from pathlib import Path

from carina_dra.durable_file import replace_file, sync_folder
from kubelet_plugin.node.release import Phase

_log = logging.getLogger(__name__)


class PhaseFile:
    """The phase of this node; all plugin processes of the driver on the node share it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> Phase:
        """Returns the phase: in service without the file.

        What another version of the plugin wrote counts as draining, which the Node decides about.
        Raises OSError.
        """
        try:
            text = self._path.read_text(encoding="utf-8", errors="replace").strip()
        except FileNotFoundError:
            return Phase.IN_SERVICE
        try:
            return Phase(text)
        except ValueError:
            _log.warning("unknown phase of a release", extra={"path": str(self._path)})
            return Phase.DRAINING

    def refuses_claims(self) -> bool:
        """Returns whether no further claim is prepared; if that cannot be read, none is."""
        try:
            return self.read() in (Phase.DRAINING, Phase.RELEASED)
        except OSError:
            _log.exception("the phase of a release cannot be read; no claim is prepared")
            return True

    def store(self, phase: Phase) -> None:
        """Makes it the phase, durably; raises OSError."""
        if phase is not Phase.IN_SERVICE:
            path = str(self._path)
            replace_file(path, f"{phase}\n".encode(), temporary=f"{path}.new")
            return
        self._path.unlink(missing_ok=True)
        sync_folder(self._path.parent)
