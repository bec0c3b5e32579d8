"""Every command of the docs runs in a test, or has a reason why it does not."""

import os
import sys
from pathlib import Path
from typing import Final

from tests.documented.page import PageCommand, steps, unmarked
from tests.documented.reader import follow

_ROOT: Final = Path(__file__).parents[3]
_DOCS: Final = _ROOT / "docs"
_ON_A_NODE: Final = {
    "controller.md",
    "migrate-from-nvidia.md",
    "quick-start.md",
    "troubleshooting.md",
}
"""tests/e2e/test_quick_start.py and test_task_pages.py follow them."""
_WITHOUT_A_CLUSTER: Final = {"simulate.md"}
_NEEDS_ALPHA_GATES: Final = {"alpha-fields.md"}
"""Nobody follows it: the cluster of the tests has no alpha feature gates."""
_READ_ONLY: Final = {
    "allocation.md": "files and a node of the reader",
    "commands.md": "tests/e2e/test_daemonset.py binds the Role to a user",
    "gpu-proof.md": "tests/integration/gpu_proof runs the command without make",
    "install.md": "tests/e2e/test_chart.py installs, tests and upgrades the chart in its own words",
    "kubectl-plugin.md": "krew, which a release is given to",
    "migrate-from-nvidia.md": "a search that finds something only beside NVIDIA's driver",
    "node-release.md": "the driver of a node; tests/e2e/test_daemonset.py releases one",
    "release.md": "make release and the build of the image; tests/integration/release",
    "uninstall.md": "tests/e2e/test_chart.py uninstalls in its own words",
}


def _pages() -> dict[str, str]:
    return {page.name: page.read_text() for page in _DOCS.glob("*.md")}


def test_the_commands_of_pages_that_need_no_cluster_run(tmp_path: Path) -> None:
    (tmp_path / "deploy").symlink_to(_ROOT / "deploy")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    for page in sorted(_WITHOUT_A_CLUSTER):
        assert follow(_DOCS / page, tmp_path, environment={"PATH": path}) > 0
    assert (tmp_path / "picture.svg").exists()


def test_every_page_with_consoles_is_followed() -> None:
    with_commands = {
        name
        for name, text in _pages().items()
        if any(isinstance(step, PageCommand) for step in steps(text))
    }
    assert with_commands == _ON_A_NODE | _WITHOUT_A_CLUSTER | _NEEDS_ALPHA_GATES


def test_commands_that_do_not_run_have_a_reason() -> None:
    silent = {name: commands for name, text in _pages().items() if (commands := unmarked(text))}
    assert {name: silent[name] for name in silent.keys() - _READ_ONLY.keys()} == {}
    assert _READ_ONLY.keys() - silent.keys() == set(), "a reason for nothing"
