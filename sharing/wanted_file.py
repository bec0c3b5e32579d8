"""The last message of the kubelet plugin, on disk: what is watched after a restart."""

import logging
import os
from contextlib import suppress
from pathlib import Path

from carina_dra.durable_file import replace_file
from carina_dra.sharing.files import DAMAGED, NEW_WANTED, WANTED
from carina_dra.sharing.message import MessageError, WantedShares

_log = logging.getLogger(__name__)


class WantedFile:
    """The file in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.last: WantedShares | None = None
        """What was read or saved last."""

    def load(self) -> WantedShares | None:
        """Returns what is in the file; None if there is none: then it is not known what is wanted.

        A file that cannot be read as a message is set aside. The plugin sends what it wants when it
        connects. Raises OSError.
        """
        file = self._folder / WANTED
        try:
            content = file.read_bytes()
        except FileNotFoundError:
            return None
        try:
            self.last = WantedShares.parse(content)
        except MessageError as error:
            aside = self._folder / DAMAGED
            file.replace(aside)
            _log.error(
                "the file of watched shares is damaged and was set aside; shares are watched again "
                "once the kubelet plugin connects",
                extra={"path": str(aside), "error": str(error)},
            )
            return None
        return self.last

    def save(self, wanted: WantedShares) -> None:
        """Replaces the file, durably. Raises OSError."""
        self.last = wanted
        folder = os.fspath(self._folder)
        replace_file(f"{folder}/{WANTED}", wanted.line(), temporary=f"{folder}/{NEW_WANTED}")

    def forget(self) -> None:
        """Removes the file, as far as that can be done: a full disk does not prevent it."""
        with suppress(OSError):
            (self._folder / WANTED).unlink(missing_ok=True)
