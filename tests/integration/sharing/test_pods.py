"""Which pod uses how much: real processes in real cgroups."""

from collections.abc import Iterator

import pytest

from tests.integration.sharing.cgroups import Kubepods, kubepods, mount, move
from tests.integration.sharing.site import MIB, Site, site, uid


@pytest.fixture(params=["v2-systemd", "v1"])
def cgroups(request: pytest.FixtureRequest) -> Iterator[Kubepods]:
    version, _, systemd = request.param.partition("-")
    at = mount(version)
    if isinstance(at, str):
        pytest.skip(at)
    with kubepods(at, systemd=bool(systemd)) as made:
        yield made


@pytest.fixture
def node(cgroups: Kubepods) -> Iterator[Site]:
    with site(cgroups.path) as made:
        made.start()
        yield made


def run(
    node: Site, cgroups: Kubepods, pod: str, memory_mib: int, *below: str, qos: str | None = None
) -> int:
    """Runs a process of a pod that uses the first GPU."""
    pid = node.sleeper()
    move(pid, cgroups.container(uid(pod), qos, *below))
    node.gpus.run_process(0, pid, memory=memory_mib * MIB)
    return pid


def test_a_pod_of_each_class_has_its_processes(node: Site, cgroups: Kubepods) -> None:
    for pod, qos in (("a", None), ("b", "burstable"), ("c", "besteffort")):
        run(node, cgroups, pod, 300, qos=qos)
    with node.connected() as plugin:
        plugin.want(*(node.share(pod, pod) for pod in "abc"))
        report = plugin.report(lambda report: report.uses)
    assert [(use.used_mib, use.pods[0].processes) for use in report.uses] == [(300, 1)] * 3
    assert report.strangers == ()


def test_above_its_memory_and_below_it_again(node: Site, cgroups: Kubepods) -> None:
    pid = run(node, cgroups, "a", 900)
    with node.connected() as plugin:
        plugin.want(node.share("a", "a"))
        assert plugin.use("a", lambda use: use.used_mib == 900).exceeded_since is None
        node.gpus.run_process(0, pid, memory=2000 * MIB)
        exceeds = plugin.use("a", lambda use: use.exceeded_since is not None)
        assert (exceeds.used_mib, exceeds.exceeded) == (2000, 1)
        node.gpus.run_process(0, pid, memory=1000 * MIB)
        ended = plugin.use("a", lambda use: use.exceeded_since is None)
        assert (ended.used_mib, ended.exceeded) == (1000, 1)
    assert "pods use more memory of a GPU than they have shares of" in node.log
    assert str(pid) in node.log


def test_pods_that_share_a_claim_are_charged_together(node: Site, cgroups: Kubepods) -> None:
    for pod in ("a", "b"):
        run(node, cgroups, pod, 600)
    with node.connected() as plugin:
        plugin.want(node.share("claim", "a", "b"))
        use = plugin.use("claim", lambda use: use.exceeded)
    assert (use.used_mib, [pod.memory_mib for pod in use.pods]) == (1200, [600, 600])


def test_a_process_that_moves_is_charged_where_it_is(node: Site, cgroups: Kubepods) -> None:
    pid = run(node, cgroups, "a", 500)
    with node.connected() as plugin:
        plugin.want(node.share("a", "a"), node.share("b", "b"))
        plugin.use("a", lambda use: use.used_mib == 500)
        move(pid, cgroups.container(uid("b")))
        plugin.use("b", lambda use: use.used_mib == 500)
        move(pid, cgroups.mount)
        report = plugin.report(lambda report: report.strangers)
    assert report.strangers[0].memory_mib == 500
    assert [use.used_mib for use in report.uses] == [0, 0]


def test_a_container_cannot_pass_for_another_pod(node: Site, cgroups: Kubepods) -> None:
    below = cgroups.container(uid("victim")).relative_to(cgroups.mount / cgroups.name)
    run(node, cgroups, "hostile", 5000, *below.parts)
    with node.connected() as plugin:
        plugin.want(node.share("hostile", "hostile"), node.share("victim", "victim"))
        hostile = plugin.use("hostile", lambda use: use.exceeded)
        victim = plugin.use("victim", lambda use: True)
    assert hostile.used_mib == 5000
    assert (victim.used_mib, victim.exceeded) == (0, 0)


def test_the_name_of_a_pod_outside_of_the_kubelets_cgroup_says_nothing(
    node: Site, cgroups: Kubepods
) -> None:
    own = cgroups.container(uid("a"))
    elsewhere = cgroups.mount / cgroups.name / "service" / own.relative_to(cgroups.mount)
    elsewhere.mkdir(parents=True)
    pid = node.sleeper()
    move(pid, elsewhere)
    node.gpus.run_process(0, pid, memory=700 * MIB)
    with node.connected() as plugin:
        plugin.want(node.share("a", "a"))
        report = plugin.report(lambda report: report.strangers)
    assert (report.uses[0].used_mib, report.strangers[0].memory_mib) == (0, 700)


def test_what_is_kept_of_a_process_that_has_ended_is_charged_to_its_pod(
    node: Site, cgroups: Kubepods
) -> None:
    pid = run(node, cgroups, "a", 5000)
    with node.connected() as plugin:
        plugin.want(node.share("a", "a"))
        plugin.use("a", lambda use: use.exceeded)
        node.processes[-1].kill()
        node.processes[-1].wait()
        node.gpus.run_process(0, pid, memory=6000 * MIB)
        plugin.use("a", lambda use: use.used_mib == 6000)
        node.gpus.end_process(0, pid)
        plugin.use("a", lambda use: use.used_mib == 0)
