"""The clusters as pytest fixtures: skipped with the reason where there can be none.

`cluster` is a control plane, `node` a node with a control plane of its own; each lasts as long as
the session and is shared by the tests that ask for it, which keep to namespaces of their own.
A test that asks for one is marked with it (`kubernetes`, `node`), and one that asks
for `helm` too. In CI (CI=true) what would be skipped fails. What is not built yet is built before
the first test, outside of its time limit.
"""

import os
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path

import pytest

from simulation.kubernetes import binaries, build, debian, plugin_image, releases
from simulation.kubernetes import node as nodes
from simulation.kubernetes.cluster import Cluster, running_cluster
from simulation.kubernetes.node import Node
from simulation.kubernetes.releases import Release

_KUBERNETES, _NODE = "kubernetes", "node"
_HELM = "helm"
_IMAGE = "plugin_image"
_LOG_LINES = 20


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A control plane, without nodes."""
    with running_cluster() as running:
        yield running


@pytest.fixture(scope="session")
def node() -> Iterator[Node]:
    """A node that runs containers, and retries failed pods soon; `node.cluster` is its cluster."""
    with running_cluster() as running:
        yield nodes.start(running, sync_period="5s")


@pytest.fixture(scope="session")
def helm() -> Path:
    """Helm."""
    return binaries.helm()


@pytest.fixture(scope="session", name="plugin_image")
def built_plugin_image() -> Path:
    """The image of the kubelet plugin, as a docker archive."""
    return plugin_image.archive()


def require_real_kubernetes() -> None:
    """Skips the test, or in CI fails it, where no control plane can run."""
    _require(binaries.why_no_control_plane())


def require_real_node() -> None:
    """Skips the test, or in CI fails it, where no node can run."""
    _require(binaries.why_no_node())


def _require(why_not: str | None) -> None:
    if why_not is None:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI runs every test, but: {why_not}", pytrace=False)
    pytest.skip(why_not)


@pytest.hookimpl(tryfirst=True)  # before -m looks at the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests by the fixtures that they ask for."""
    for item in items:
        if _asks_for(item, "node"):
            item.add_marker(_NODE)
        if _asks_for(item, "cluster"):
            item.add_marker(_KUBERNETES)
        if _asks_for(item, "helm"):
            item.add_marker(_HELM)


def _asks_for(item: pytest.Item, name: str) -> bool:
    """Whether a test asks for the real one: a simulated one of that name is each test's own."""
    if not isinstance(item, pytest.Function) or name not in item.fixturenames:
        return False
    definitions = item._fixtureinfo.name2fixturedefs.get(name, ())
    return bool(definitions) and definitions[-1].scope != "function"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips what cannot run here."""
    if item.get_closest_marker(_KUBERNETES):
        require_real_kubernetes()
    if item.get_closest_marker(_NODE):
        require_real_node()
    if item.get_closest_marker(_HELM):
        _require(binaries.why_no_helm())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds the ends of the components' logs to a failure: they are gone with the cluster."""
    report = yield
    if report.failed:
        for log in sorted(_logs(getattr(item, "funcargs", {}).values())):
            lines = log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
            report.sections.append((f"end of {log}", "\n".join(lines)))
    return report


def _logs(values: Iterable[object]) -> set[Path]:
    clusters = [value.cluster if isinstance(value, Node) else value for value in values]
    folders = {each.state.logs for each in clusters if isinstance(each, Cluster)}
    return {log for folder in folders for log in folder.glob("*.log")}


def pytest_collection_finish(session: pytest.Session) -> None:
    """Builds what the collected tests need."""
    if session.config.option.collectonly:
        return
    marks = {mark.name for item in session.items for mark in item.iter_markers()}
    wanted: list[Release] = []
    if marks & {_KUBERNETES, _NODE} and binaries.why_no_control_plane() is None:
        wanted += binaries.control_plane_releases()
    installs = _NODE in marks and binaries.why_no_node() is None
    if installs:
        wanted += binaries.node_releases()
    if _HELM in marks and binaries.why_no_helm() is None:
        wanted.append(releases.helm())
    capture = session.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        if installs:
            debian.install_missing()
        build.build(wanted)
        if installs and any(_IMAGE in getattr(item, "fixturenames", ()) for item in session.items):
            plugin_image.archive()
