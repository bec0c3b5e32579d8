"""Does what the own Node asks for."""

import contextlib
import time
from collections.abc import Callable

from carina_dra.kube.client import Client
from kubelet_plugin.claims.failure import ClaimError, NodeResourceFailed
from kubelet_plugin.claims.lifecycle import ClaimLifecycle
from kubelet_plugin.node.answering import NodeAnswer
from kubelet_plugin.node.phase_file import PhaseFile
from kubelet_plugin.node.releasing import Releasing
from kubelet_plugin.node.watch import NodeWatch
from kubelet_plugin.prepare.mps_daemons import MpsDaemons
from kubelet_plugin.prepare.resource import ResourceError
from kubelet_plugin.publish.publisher import Publisher
from kubelet_plugin.report.node import NodeReport
from kubelet_plugin.settings import PluginSettings


def own_node(chosen: PluginSettings, client: Client, report: NodeReport) -> NodeWatch:
    """The watch of the own Node, which is not started yet."""
    return NodeWatch(
        client,
        node=chosen.node_name,
        driver=chosen.driver_name,
        invalid=report.annotation_ignored,
    )


def node_release(
    chosen: PluginSettings,
    client: Client,
    phase: PhaseFile,
    claims: ClaimLifecycle,
    publisher: Publisher,
    watch: NodeWatch,
    restart: Callable[[], None],
    cleanup: contextlib.ExitStack,
    *,
    daemons: MpsDaemons,
    closed: bool,
) -> Releasing:
    """Watches the own Node; what it returns does what the Node asks for, once it is started."""

    def holders() -> tuple[str, ...]:
        try:
            left = daemons.left()
        except ResourceError as error:
            raise ClaimError(NodeResourceFailed(None, error.failure)) from error
        of_daemons = (f"the MPS daemon of a claim that was unprepared, {uid}" for uid in left)
        return (*claims.holders(), *of_daemons)

    release = Releasing(
        phase,
        view=lambda: watch.latest,
        holders=holders,
        taint=publisher.release,
        is_published=lambda: publisher.published,
        answer=NodeAnswer(
            client, node=chosen.node_name, driver=chosen.driver_name, now=time.time
        ).write,
        restart=restart,
        nvml_is_closed=closed,
    )
    watch.listen(lambda _: release.look())
    watch.start()
    cleanup.callback(watch.stop)
    return release
