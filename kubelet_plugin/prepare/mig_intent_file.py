"""The files that record what Carina makes on the GPUs with MIG, one for each GPU.

A file is changed under the lock of its GPU, and read without one. It is replaced atomically and
durably before anything is made that it names, and removed when it names nothing. A file that cannot
be read names nothing, so that what is on the GPU is left: it is kept under another name when the
next intent for the GPU is recorded.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from kubelet_plugin.devices.name import WholeGpuName
from kubelet_plugin.inventory.gpu import Gpu
from kubelet_plugin.inventory.mig_intent import (
    MigIntentError,
    MigIntents,
    parse_intents,
    render_intents,
)
from kubelet_plugin.prepare.record_folder import DamagedRecordError, RecordFolder
from kubelet_plugin.prepare.resource import ResourceError

_log = logging.getLogger(__name__)


class MigIntentFiles:
    """The recorded intents of a node. Methods raise ResourceError if the folder is unusable."""

    def __init__(self, folder: Path, boot_id: str) -> None:
        self._folder = RecordFolder(
            folder,
            lambda content: _parsed(content, boot_id),
            subject="the record of MIG instances",
            damage="a record of MIG instances cannot be read; the instances on its GPU are treated "
            "as an administrator's: destroy those that no pod uses with nvidia-smi",
        )
        self._boot_id = boot_id
        self._reported: dict[str, str] = {}
        self._last_read: dict[str, MigIntents | None] = {}

    def read(self, uuid: str) -> MigIntents | None:
        """Returns what is recorded for the GPU with this UUID since the node's boot."""
        return self._folder.read(uuid)

    def current(self, gpu: Gpu) -> MigIntents:
        """Returns what is recorded for a GPU since the node's boot, under its present name.

        The driver may have renumbered the GPUs since the last intent was recorded.
        """
        name = str(WholeGpuName(gpu.minor))
        recorded = self.read(gpu.uuid) or MigIntents(name, gpu.pci_bus_id)
        return replace(recorded, gpu=name, pci_bus_id=gpu.pci_bus_id)

    def last_read(self, uuid: str) -> MigIntents | None:
        """Returns what is recorded for the GPU; while it cannot be read, what was read last.

        So the inventory of the node does not depend on the folder. Raises nothing.
        """
        try:
            self._last_read[uuid] = self.read(uuid)
        except ResourceError as error:
            if self._reported.get(uuid) != str(error):
                self._reported[uuid] = str(error)
                meanwhile = (
                    "using what was read last"
                    if uuid in self._last_read
                    else "the instances on its GPU are taken for an administrator's"
                )
                _log.warning(
                    f"a record of MIG instances cannot be read; {meanwhile}",
                    extra={"gpu": uuid, "reason": str(error)},
                )
        return self._last_read.get(uuid)

    def all(self) -> Mapping[str, MigIntents]:
        """Returns what is recorded since the node's boot, by the UUID of the GPU."""
        return self._folder.all()

    def store(self, uuid: str, intents: MigIntents) -> None:
        """Records the intents for a GPU durably, in place of those recorded before."""
        if self._folder.is_damaged(uuid):
            self._folder.set_aside(uuid)
        if intents:
            self._folder.store(uuid, render_intents(intents, self._boot_id))
        else:
            self._folder.remove(uuid)


def _parsed(content: bytes, boot_id: str) -> MigIntents | None:
    try:
        return parse_intents(content, boot_id)
    except MigIntentError as error:
        raise DamagedRecordError(str(error)) from error
