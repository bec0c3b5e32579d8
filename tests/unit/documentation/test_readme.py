"""The first page shows what the quick start has its reader do, and links to every other page."""

import re
from pathlib import Path

import yaml

from tests.documented.page import PageFile, steps

_ROOT = Path(__file__).parents[3]
_README = (_ROOT / "README.md").read_text()


def test_its_manifests_are_those_of_the_quick_start() -> None:
    (shown,) = re.findall(r"^```yaml\n(.*?)^```$", _README, re.MULTILINE | re.DOTALL)
    page = (_ROOT / "docs" / "quick-start.md").read_text()
    assert shown in [step.text for step in steps(page) if isinstance(step, PageFile)]
    assert [document["kind"] for document in yaml.safe_load_all(shown)] == [
        "Queue",
        "Job",
        "ResourceClaimTemplate",
        "Pod",
    ]


def test_it_links_to_every_page() -> None:
    pages = {str(page.relative_to(_ROOT)) for page in (_ROOT / "docs").rglob("*.md")}
    linked = set(re.findall(r"\]\((docs/[^)#]+\.md)", _README))
    assert linked == pages
