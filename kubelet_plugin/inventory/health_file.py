"""The files in which the health of GPUs, and what GPUs there are, outlast the plugin.

`health.json` is what nothing else knows. If it is damaged, it is set aside under another name, and
an error says so. `gpus.json` is what the driver says again when it answers, so a file of another
version counts as none.
"""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter, ValidationError

from carina_dra.durable_file import replace_file
from kubelet_plugin.inventory.gpu import ObservedGpu
from kubelet_plugin.inventory.health import HEALTHY
from kubelet_plugin.inventory.health_record import HealthRecordError, read, written
from kubelet_plugin.inventory.inventory import DriverReady
from kubelet_plugin.inventory.node_health import RememberedHealth

_GPUS: Final = TypeAdapter(tuple[ObservedGpu, ...])

_log = logging.getLogger(__name__)


class HealthFile:
    """The file `health.json` of the plugin's folder."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "health.json"

    def load(self) -> RememberedHealth:
        """Returns what was remembered; nothing if there is no file, or a damaged one.

        Raises OSError: the file cannot be read, or not be set aside.
        """
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            return RememberedHealth()
        try:
            return read(content)
        except HealthRecordError as error:
            aside = self._path.with_name(f"{self._path.name}.damaged")
            self._path.rename(aside)
            _log.error(
                "the record of GPU faults is damaged, and set aside: GPUs count as healthy unless "
                "the driver says otherwise now; look at it, and taint GPUs that are not healthy "
                "with a DeviceTaintRule",
                extra={"path": str(aside), "error": str(error)},
            )
            return RememberedHealth()

    def save(self, remembered: RememberedHealth) -> None:
        """Replaces what is remembered. Raises OSError."""
        replace_file(str(self._path), written(remembered), temporary=f"{self._path}.tmp")


class GpusFile:
    """The file `gpus.json` of the plugin's folder: the GPUs as they were last read."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "gpus.json"
        self._saved: bytes | None = None

    def load(self) -> DriverReady | None:
        """Returns the GPUs of an earlier process; None if there is no file that can be used."""
        try:
            content = self._path.read_bytes()
            gpus = _GPUS.validate_json(content)
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as error:
            _log.warning(
                "the record of the node's GPUs cannot be used; the driver is asked instead",
                extra={"path": str(self._path), "error": str(error)},
            )
            return None
        self._saved = content
        return DriverReady(gpus)

    def save(self, inventory: DriverReady) -> None:
        """Keeps what the GPUs are, without their problems. Raises OSError."""
        gpus = tuple(
            replace(observed, state=replace(observed.state, problems=HEALTHY))
            for observed in inventory.gpus
        )
        content = _GPUS.dump_json(gpus)
        if content == self._saved:
            return
        replace_file(str(self._path), content, temporary=f"{self._path}.tmp")
        self._saved = content
