"""Paths below a root, compared with what chroot(2) makes of them."""

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carina_dra.nvidia.rooted_path import RootedPath, RootedPaths

NAMES = ("a", "b", "c")
targets = st.lists(st.sampled_from((*NAMES, "..", ".")), min_size=1, max_size=4).map("/".join)
links = st.dictionaries(
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=2).map(tuple),
    st.one_of(targets, targets.map("/{}".format)),
    max_size=5,
)


def lay(root: Path, tree: dict[tuple[str, ...], str]) -> None:
    """Makes the links, and folders of all names beside them."""
    for parts in sorted([*((a,) for a in NAMES), *((a, b) for a in NAMES for b in NAMES)]):
        path = root.joinpath(*parts)
        if path.parent.is_symlink():
            continue
        if parts in tree:
            path.symlink_to(tree[parts])
        else:
            path.mkdir()


def as_chroot_finds(root: Path, absolute: str) -> int:
    """The inode, or the negative number of the error, that a process in the root gets."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.chroot(root)
        try:
            answer = Path(absolute).stat().st_ino
        except OSError as error:
            answer = -(error.errno or 0)
        os.write(writing, str(answer).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with os.fdopen(reading) as answered:
        return int(answered.read())


def found(root: Path, absolute: str) -> int:
    """The same by this module."""
    try:
        return Path(RootedPaths(root).locate(absolute)).lstat().st_ino
    except OSError as error:
        return -(error.errno or 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="chroot needs root")
@given(tree=links, path=targets)
def test_a_path_leads_where_chroot_leads(
    tmp_path_factory: pytest.TempPathFactory, tree: dict[tuple[str, ...], str], path: str
) -> None:
    root = tmp_path_factory.mktemp("root")
    lay(root, tree)
    expected = as_chroot_finds(root, f"/{path}")
    if expected != -errno.ENOENT:  # "missing/.." is the folder here, and not found there
        assert found(root, f"/{path}") == expected


def test_a_loop_is_an_error_that_names_the_path(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("/b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match=rf"symbolic links: '{tmp_path}/a/c'") as caught:
        RootedPath(tmp_path, "/a/c").locate()
    assert caught.value.errno == errno.ELOOP


@pytest.mark.parametrize(("links", "resolves"), [(40, True), (41, False)])
def test_as_many_links_are_followed_as_the_kernel_follows(
    tmp_path: Path, links: int, resolves: bool
) -> None:
    (tmp_path / "0").touch()
    for number in range(1, links + 1):
        (tmp_path / f"{number}").symlink_to(f"{number - 1}")
    for locate in (
        (tmp_path / f"{links}").stat,
        RootedPath(tmp_path, f"/{links}").locate,
    ):
        if resolves:
            locate()
        else:
            with pytest.raises(OSError, match="symbolic links"):
                locate()


def test_what_does_not_exist_is_named_where_it_would_be(tmp_path: Path) -> None:
    (tmp_path / "lib").symlink_to("/usr/lib")
    assert RootedPath(tmp_path, "/lib/x").locate() == tmp_path / "usr/lib/x"
    assert RootedPath(Path("/"), "/no/such/file").locate() == Path("/no/such/file")


def test_the_root_itself_has_a_path(tmp_path: Path) -> None:
    (tmp_path / "host").symlink_to("/")
    assert RootedPath(tmp_path, "/host").locate() == tmp_path
    assert RootedPath(Path("/"), "/usr/..").locate() == Path("/")
