"""Tar archives with the same bytes for the same content: in order, at one time, of nobody."""

import gzip
import io
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from release.project import TIME


@dataclass(frozen=True, slots=True)
class Member:
    """A file of an archive."""

    name: str
    content: bytes
    mode: int = 0o644


def members_of(folder: Path) -> list[Member]:
    """The files below a folder, by their paths in it."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return [Member(str(path.relative_to(folder)), path.read_bytes()) for path in files]


def unpacked(archive: Path) -> list[Member]:
    """The files of an archive, compressed or not."""
    with tarfile.open(archive) as opened:
        return [
            Member(entry.name, content.read(), entry.mode)
            for entry in opened
            if (content := opened.extractfile(entry)) is not None
        ]


def tar(members: Iterable[Member]) -> bytes:
    """An archive of the members."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        for member in sorted(members, key=lambda member: member.name):
            entry = tarfile.TarInfo(member.name)
            entry.size, entry.mode, entry.mtime = len(member.content), member.mode, TIME
            archive.addfile(entry, io.BytesIO(member.content))
    return written.getvalue()


def gzipped_tar(members: Iterable[Member]) -> bytes:
    """The same, compressed."""
    return gzip.compress(tar(members), mtime=TIME)
