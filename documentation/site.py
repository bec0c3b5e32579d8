"""A hook of MkDocs: gives the site what the pages have beside them in the repository.

The pages read on a code host, where a link such as `../deploy/examples/single-gpu.yaml` leads to
the file. On the site it leads to a page with its text, or with the list of a folder's files.
README.md is the first page. A link to what does not exist stays as it is, and the strict build
refuses it.
"""

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from posixpath import normpath, relpath
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

_ROOT: Final = Path(__file__).resolve().parents[1]
_FIRST: Final = "index.md"
_README: Final = "README.md"
_COPIES: Final = "repository"
"""The folder of the site with the pages of files that are not in docs/."""
_TARGET: Final = re.compile(r"(?<=\]\()(?P<path>[^)#\s:]+)(?P<anchor>#[^)\s]*)?(?=\))")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Adds the first page, and a page for each file of the repository that a page links to."""
    files.append(File.generated(config, _FIRST, content=(_ROOT / _README).read_text()))
    linked = {
        path
        for file in tuple(files.documentation_pages())
        for path in _linked(file.src_uri, file.content_string)
    }
    inside = {file for path in linked for file in _inside(path)}
    for path in sorted(linked | inside):
        files.append(File.generated(config, _copy(path), content=_text(path)))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turns links to files of the repository into links to their pages on the site."""
    del config, files
    source = page.file.src_uri
    if source.startswith(f"{_COPIES}/"):
        return markdown

    def on_site(match: re.Match[str]) -> str:
        path = _in_repository(source, match["path"])
        anchor = match["anchor"] or ""
        if path is None:
            return match[0]
        if path.is_relative_to("docs"):
            return relpath(path.relative_to("docs"), PurePosixPath(source).parent) + anchor
        return relpath(_copy(path), PurePosixPath(source).parent)

    return _TARGET.sub(on_site, markdown)


def _linked(source: str, markdown: str) -> Iterator[PurePosixPath]:
    for match in _TARGET.finditer(markdown):
        path = _in_repository(source, match["path"])
        if path is not None and not path.is_relative_to("docs"):
            yield path


def _in_repository(source: str, target: str) -> PurePosixPath | None:
    """The path in the repository that a link of a page means; None if there is nothing."""
    folder = PurePosixPath() if source == _FIRST else PurePosixPath("docs", source).parent
    path = PurePosixPath(normpath(folder / target))
    return path if (_ROOT / path).exists() else None


def _inside(path: PurePosixPath) -> Iterator[PurePosixPath]:
    if (_ROOT / path).is_dir():
        yield from (path / inside.name for inside in (_ROOT / path).iterdir() if inside.is_file())


def _copy(path: PurePosixPath) -> str:
    return f"{_COPIES}/{path}/index.md" if (_ROOT / path).is_dir() else f"{_COPIES}/{path}.md"


def _text(path: PurePosixPath) -> str:
    if (_ROOT / path).is_dir():
        names = sorted(inside.name for inside in _inside(path))
        return f"# {path}\n\n" + "".join(f"- [{name}]({name}.md)\n" for name in names)
    language = path.suffix.removeprefix(".") or "text"
    return f"# {path}\n\n````{language}\n{(_ROOT / path).read_text()}````\n"
