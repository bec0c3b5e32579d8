"""The site has every page, and every link on it leads somewhere without the network."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[3]
_FETCHED = re.compile(r'<(?:script|img|link rel="(?:stylesheet|preload|preconnect)")[^>]+https?://')
_NEEDED = ("mkdocs.yml", "README.md", "docs", "documentation", "deploy", "Containerfile")


def build(root: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Builds the site of a checkout."""
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--site-dir", site, "-f", root / "mkdocs.yml"],
        env={"NO_MKDOCS_2_WARNING": "1", "http_proxy": "http://192.0.2.1", "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What the site is made of, to change it."""
    for name in _NEEDED:
        source, target = _ROOT / name, tmp_path / "checkout" / name
        target.parent.mkdir(exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    return tmp_path / "checkout"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as it is committed."""
    folder = tmp_path_factory.mktemp("site")
    done = build(_ROOT, folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_a_reader_fetches_nothing_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert pages
    assert [page for page in pages if _FETCHED.search(page.read_text())] == []


def test_a_file_beside_the_pages_is_a_page_of_the_site(site: Path) -> None:
    copy = "repository/deploy/examples/mig-by-profile.yaml.html"
    assert "ResourceClaim" in (site / copy).read_text()
    assert copy in (site / "mig.html").read_text()


def test_the_readme_is_the_first_page_with_its_picture_and_its_links(site: Path) -> None:
    first = (site / "index.html").read_text()
    assert 'src="images/carina.svg"' in first
    assert 'href="quick-start.html"' in first
    assert (site / "images" / "carina.svg").exists()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ("[x](nowhere.md)", "nowhere.md"),
        ("[x](shares.md#nowhere)", "#nowhere"),
        ("[x](../deploy/nowhere.yaml)", "nowhere.yaml"),
        ("[x](/shares.md)", "absolute"),
    ],
)
def test_a_link_that_leads_nowhere_is_refused(
    checkout: Path, tmp_path: Path, change: str, complaint: str
) -> None:
    page = checkout / "docs" / "mig.md"
    page.write_text(page.read_text() + f"\n{change}\n")
    done = build(checkout, tmp_path / "site")
    assert done.returncode != 0
    assert complaint in done.stderr


def test_a_page_that_is_not_in_the_navigation_is_refused(checkout: Path, tmp_path: Path) -> None:
    (checkout / "docs" / "lonely.md").write_text("# Lonely\n")
    done = build(checkout, tmp_path / "site")
    assert done.returncode != 0
    assert "lonely.md" in done.stderr
