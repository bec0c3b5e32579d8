"""The files that record what Carina makes on the GPUs with MIG, one for each GPU.

A file is changed under the lock of its GPU, and read without one. It is replaced atomically and
durably before anything is made that it names, and removed when it names nothing. A file that cannot
be read names nothing, so that what is on the GPU is left: it is kept under another name when the
next intent for the GPU is recorded.
"""

import contextlib
import logging
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from carina_dra.durable_file import sync_folder
from kubelet_plugin.claims.resource_failure import file_failure
from kubelet_plugin.devices.name import WholeGpuName
from kubelet_plugin.inventory.gpu import Gpu
from kubelet_plugin.inventory.mig_intent import (
    MigIntentError,
    MigIntents,
    parse_intents,
    render_intents,
)
from kubelet_plugin.prepare.resource import ResourceError

_SUFFIX: Final = ".json"
_TEMPORARY: Final = ".new"

_log = logging.getLogger(__name__)


class MigIntentFiles:
    """The recorded intents of a node. Methods raise ResourceError if the folder is unusable."""

    def __init__(self, folder: Path, boot_id: str) -> None:
        self._folder = folder
        self._boot_id = boot_id
        self._reported: dict[str, str] = {}
        self._last_read: dict[str, MigIntents | None] = {}

    def read(self, uuid: str) -> MigIntents | None:
        """Returns what is recorded for the GPU with this UUID since the node's boot."""
        with self._usable():
            try:
                content = self._file(uuid).read_bytes()
            except FileNotFoundError:
                return None
        try:
            return parse_intents(content, self._boot_id)
        except MigIntentError as error:
            if self._reported.get(uuid) != str(error):
                self._reported[uuid] = str(error)
                _log.warning(
                    "a record of MIG instances cannot be read; the instances on its GPU are "
                    "treated as an administrator's: destroy those that no pod uses with nvidia-smi",
                    extra={"file": str(self._file(uuid)), "reason": f"it {error}"},
                )
            return None

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
        with self._usable():
            try:
                names = sorted(entry.name for entry in os.scandir(self._folder) if entry.is_file())
            except FileNotFoundError:
                return {}
        uuids = [name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)]
        read = {uuid: self.read(uuid) for uuid in uuids}
        return {uuid: intents for uuid, intents in read.items() if intents is not None}

    def store(self, uuid: str, intents: MigIntents) -> None:
        """Records the intents for a GPU durably, in place of those recorded before."""
        with self._usable():
            self._store(uuid, intents)

    def _store(self, uuid: str, intents: MigIntents) -> None:
        file = self._file(uuid)
        self._keep_unreadable(file)
        temporary = file.with_name(file.name + _TEMPORARY)
        if not intents:
            for path in (temporary, file):
                path.unlink(missing_ok=True)
            with contextlib.suppress(FileNotFoundError):
                sync_folder(self._folder)
            return
        if not self._folder.is_dir():
            self._folder.mkdir(parents=True, exist_ok=True)
            sync_folder(self._folder.parent)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            with os.fdopen(descriptor, "wb", closefd=False) as stream:
                stream.write(render_intents(intents, self._boot_id))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.rename(file)
        sync_folder(self._folder)

    def _keep_unreadable(self, file: Path) -> None:
        try:
            parse_intents(file.read_bytes(), self._boot_id)
        except FileNotFoundError:
            pass
        except MigIntentError:
            modified = file.stat().st_mtime_ns
            file.rename(file.with_name(f"{file.name}.unreadable-{modified}"))

    @contextlib.contextmanager
    def _usable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ResourceError(
                file_failure(
                    f"the record of MIG instances in {self._folder}",
                    "used",
                    error,
                    "check the folder and its disk",
                )
            ) from error

    def _file(self, uuid: str) -> Path:
        return self._folder / f"{uuid}{_SUFFIX}"
