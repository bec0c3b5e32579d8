"""MPS daemons: real processes in real cgroups, of a stand-in for the driver's program."""

from collections.abc import Iterator

import pytest

from tests.integration.sharing.site import Site, site

MISSED = 3


@pytest.fixture
def node() -> Iterator[Site]:
    with site("/kubepods") as made:
        yield made


def test_a_daemon_runs_with_its_limits_while_it_is_wanted(node: Site) -> None:
    node.start()
    with node.connected() as plugin:
        wanted = node.daemon("a", memory_mib=3000, cores=30)
        plugin.want(daemons=[wanted])
        plugin.ready(wanted)
        assert node.commands("a")[1:] == [
            "get_server_list",
            "set_default_device_pinned_mem_limit 0 3000M",
            "set_default_active_thread_percentage 30",
            "get_default_device_pinned_mem_limit 0",
            "get_default_active_thread_percentage",
            "get_server_list",
        ]
        plugin.want()
        plugin.report(lambda report: not report.daemons)
    assert node.commands("a")[-2:] == ["quit", "ended"]
    assert not node.mps_folder("a").exists()
    assert not node.cgroup("a").pids()
