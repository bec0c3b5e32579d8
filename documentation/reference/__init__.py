"""The pages of docs/reference, each from the code that it describes.

A page has a table for each kind of thing. What a table says comes from the types, their docstrings
and the values that they make; where a text is written here, as for the attributes of devices, a
missing or needless one is an error. `python -m deploy.generate --check` finds drift.
"""

from pathlib import Path
from typing import Final

from documentation.reference import commands, devices, events, metrics, names, settings

FOLDER: Final = Path("docs", "reference")


def pages() -> dict[Path, str]:
    """The pages, by their paths in the repository."""
    return {
        FOLDER / "commands.md": commands.page(),
        FOLDER / "devices.md": devices.page(),
        FOLDER / "events.md": events.page(),
        FOLDER / "metrics.md": metrics.page(),
        FOLDER / "names.md": names.page(),
        FOLDER / "settings.md": settings.page(),
    }
