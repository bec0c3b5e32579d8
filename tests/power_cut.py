"""What a power cut can leave of a folder, at any moment of a call.

A kill shows only what the kernel has; a power cut also takes what the kernel has not put on disk.
`Disk` follows a folder while a call works on it and keeps, beside what is there, what is certain to
survive. The rules are POSIX's, and so harder than those of any one file system:

- The content of a file is certain once fsync or fdatasync of it has returned. What was written
  since may survive whole, in part, as zeros of the same length, or not at all.
- A name that was made, renamed or removed is certain once fsync of its folder has returned. Until
  then it may survive or not, whatever survives of others. A rename is one change.
"""

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias
from unittest.mock import patch

__all__ = ["Disk", "KilledError", "State", "lay_out"]

State: TypeAlias = tuple[tuple[str, "bytes | State"], ...]
"""A folder's names, sorted, each with the content of its file or the state of its folder."""

_OPERATIONS = (
    *("open", "rename", "replace", "unlink", "remove", "link", "mkdir", "rmdir", "truncate"),
    *("ftruncate", "fsync", "fdatasync"),
)


class KilledError(BaseException):
    """The process was killed here."""


@dataclass(eq=False, slots=True)
class _File:
    synced: bytes
    since: list[bytes] = field(default_factory=list)
    """Contents that were seen since, oldest first."""

    @property
    def content(self) -> bytes:
        return self.since[-1] if self.since else self.synced

    def outcomes(self) -> set[bytes | State]:
        found: set[bytes | State] = {self.synced}
        for content in self.since:
            kept = self.synced if content.startswith(self.synced) else b""
            added = content[len(kept) :]
            found |= {
                kept,
                kept + added[: len(added) // 2],
                kept + bytes(len(added)),
                content,
            }
        return found


@dataclass(eq=False, slots=True)
class _Folder:
    synced: dict[str, "_File | _Folder"] = field(default_factory=dict)
    changes: list[dict[str, "_File | _Folder | None"]] = field(default_factory=list)
    """Names that were made, or removed (None), since."""

    def names(self, survives: Callable[[int], bool]) -> dict[str, "_File | _Folder"]:
        entries: dict[str, _File | _Folder | None] = dict(self.synced)
        for number, change in enumerate(self.changes):
            if survives(number):
                entries |= change
        return {name: entry for name, entry in entries.items() if entry is not None}

    @property
    def current(self) -> dict[str, "_File | _Folder"]:
        return self.names(lambda _: True)

    def outcomes(self) -> set[bytes | State]:
        found: set[bytes | State] = set()
        for survivors in itertools.product((False, True), repeat=len(self.changes)):
            entries = sorted(self.names(survivors.__getitem__).items())
            contents = itertools.product(*(entry.outcomes() for _, entry in entries))
            found |= {
                tuple((name, content) for (name, _), content in zip(entries, chosen, strict=True))
                for chosen in contents
            }
        return found


class Disk:
    """A folder on a disk. What it holds at first is certain to survive."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._root = _Folder()
        self._numbers: dict[int, _File | _Folder] = {}
        self._look()
        for entry in self._numbers.values():
            _sync(entry)
        self._during: set[bytes | State] = set()
        self._operations = 0
        self._kill_before: int | None = None

    @contextmanager
    def watched(self, kill_before: int | None = None) -> Iterator[None]:
        """Follows what this process does to the folder during the block.

        With `kill_before` it raises KilledError in place of the operation of that number.
        """
        self._during = set()
        self._operations = 0
        self._kill_before = kill_before
        with ExitStack() as patches:
            for name in _OPERATIONS:
                replaced = self._watching(name, getattr(os, name))
                patches.enter_context(patch.object(os, name, replaced))
            yield

    @property
    def operations(self) -> int:
        """How many operations the last block had."""
        return self._operations

    def after(self) -> Iterator[State]:
        """Every state that a cut can leave now."""
        self._look()
        return self._states(self._root.outcomes())

    def during(self) -> Iterator[State]:
        """Every state that a cut during the last block could have left."""
        return self._states(self._during)

    def _states(self, outcomes: set[bytes | State]) -> Iterator[State]:
        for state in sorted(outcomes, key=repr):
            assert not isinstance(state, bytes)
            yield state

    def _watching(self, name: str, operation: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any, **named: Any) -> Any:
            self._look()
            self._during |= self._root.outcomes()
            if self._operations == self._kill_before:
                raise KilledError
            self._operations += 1
            result = operation(*arguments, **named)
            if name in {"fsync", "fdatasync"}:
                synced = self._numbers.get(os.fstat(arguments[0]).st_ino)
                if synced is not None:
                    _sync(synced)
            elif name in {"rename", "replace"}:
                self._rename(Path(arguments[0]), Path(arguments[1]))
            self._look()
            self._during |= self._root.outcomes()
            return result

        return watched

    def _rename(self, old: Path, new: Path) -> None:
        """One change, while looking finds two."""
        assert old.parent == new.parent, "no rename from one folder into another is modelled"
        folder = self._numbers[old.parent.stat().st_ino]
        assert isinstance(folder, _Folder)
        folder.changes.append({old.name: None, new.name: folder.current[old.name]})

    def _look(self) -> None:
        linked: dict[int, _File | _Folder] = {self._folder.stat().st_ino: self._root}
        self._look_into(self._root, self._folder, linked)
        self._numbers = linked  # the number of a removed file may be given to another one

    def _look_into(self, folder: _Folder, path: Path, linked: dict[int, "_File | _Folder"]) -> None:
        found: dict[str, _File | _Folder] = {}
        for child in path.iterdir():
            number = child.stat().st_ino
            entry = self._numbers.get(number) or linked.get(number)
            if entry is None:
                entry = _Folder() if child.is_dir() else _File(b"", [])
            found[child.name] = linked[number] = entry
            match entry:
                case _File():
                    content = child.read_bytes()
                    if content != entry.content:
                        entry.since.append(content)
                case _Folder():
                    self._look_into(entry, child, linked)
        current = folder.current
        for name in current.keys() - found.keys():
            folder.changes.append({name: None})
        for name, entry in found.items():
            if current.get(name) is not entry:
                folder.changes.append({name: entry})


def _sync(entry: _File | _Folder) -> None:
    match entry:
        case _File():
            entry.synced, entry.since = entry.content, []
        case _Folder():
            entry.synced, entry.changes = entry.current, []


def lay_out(state: State, folder: Path) -> None:
    """Makes an empty folder what a cut has left."""
    for name, content in state:
        if isinstance(content, bytes):
            (folder / name).write_bytes(content)
        else:
            (folder / name).mkdir()
            lay_out(content, folder / name)
