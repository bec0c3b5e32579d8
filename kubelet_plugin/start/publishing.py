"""Publishes the devices of the node."""

import contextlib
import time

from carina_dra.kube.api_resource import NODES
from carina_dra.kube.client import Client
from kubelet_plugin.kubelet.pod_resources import pod_devices
from kubelet_plugin.publish.ordering import Ordering
from kubelet_plugin.publish.other_driver_watch import (
    OtherDriverWatch,
    newer_plugin,
    same_name_plugin,
)
from kubelet_plugin.publish.other_drivers import SameNamePlugin
from kubelet_plugin.publish.pacing import paced, unpaced
from kubelet_plugin.publish.publisher import Publisher
from kubelet_plugin.report.node import NodeReport
from kubelet_plugin.settings import PluginSettings


def started_publisher(
    chosen: PluginSettings, client: Client, node_report: NodeReport, cleanup: contextlib.ExitStack
) -> Publisher:
    publisher = Publisher(
        client,
        settings=chosen.publish_settings,
        node=chosen.node_name,
        reporter=node_report,
        clock=time.monotonic,
        other_drivers=OtherDriverWatch(
            read_node=lambda: client.get(NODES, chosen.node_name),
            same_name_plugin=lambda: plugin_of_same_name(chosen),
            pod_devices=lambda: pod_devices(chosen.pod_resources),
            clock=time.monotonic,
        ),
        beside_other_drivers=chosen.beside_other_drivers,
        pace=paced if chosen.recovery_seconds else unpaced,
        ordering=Ordering(chosen.device_order, seconds=chosen.reorder_seconds),
        is_replaced=lambda: newer_plugin(chosen.plugin_directory, chosen.dra_socket),
    )
    publisher.start()
    cleanup.callback(publisher.stop)
    return publisher


def plugin_of_same_name(chosen: PluginSettings) -> SameNamePlugin | None:
    return same_name_plugin(chosen.plugin_directory, chosen.dra_socket)
