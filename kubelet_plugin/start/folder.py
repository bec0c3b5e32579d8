"""The folder of the plugin at its start: what is there, and what must not be."""

import logging

from carina_dra.process.program import ProgramError
from kubelet_plugin.claims.checkpoint import CheckpointError, CheckpointFormError
from kubelet_plugin.claims.checkpoint_file import CheckpointFile
from kubelet_plugin.node.phase_file import PhaseFile
from kubelet_plugin.node.release import Phase
from kubelet_plugin.settings import PluginSettings

_log = logging.getLogger(__name__)


def make_folders(chosen: PluginSettings) -> None:
    for folder in (chosen.plugin_directory, chosen.registration_socket.parent):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ProgramError(
                f"kubelet_root {chosen.kubelet_root}: {folder} cannot be created: {error}; set "
                "kubelet_root to the kubelet's --root-dir, mounted at the same path and writable"
            ) from error


def check_checkpoint(chosen: PluginSettings) -> None:
    """Refuses the record of another version before anything is published. Raises ProgramError."""
    try:
        CheckpointFile(chosen.checkpoint).check_form()
    except CheckpointFormError as error:
        raise ProgramError(str(error)) from error


def held_devices(chosen: PluginSettings) -> frozenset[str]:
    """The devices of recorded claims; none if the record cannot be read."""
    try:
        checkpoint = CheckpointFile(chosen.checkpoint).load()
    except (CheckpointError, CheckpointFormError, OSError) as error:
        _log.warning("the record of claims cannot be read yet", extra={"error": str(error)})
        return frozenset()
    claims = () if checkpoint is None else checkpoint.claims.values()
    return frozenset(use.device for claim in claims for use in claim.uses)


def is_released(phase: PhaseFile) -> bool:
    try:
        return phase.read() is Phase.RELEASED
    except OSError as error:
        raise ProgramError(f"the phase of a release cannot be read: {error}") from error
