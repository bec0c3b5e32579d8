"""Who hears of changes of the record: the order of devices follows what claims use."""

from collections.abc import Collection
from pathlib import Path

import pytest

from carina_dra.quantity import Quantity
from kubelet_plugin.claims.claim import NodeClaim
from kubelet_plugin.claims.lifecycle import ClaimLifecycle
from kubelet_plugin.devices.room import DeviceUse
from tests.fakes.claims import PATIENT, FakePreparer, FakeReporter
from tests.fakes.lifecycle import lifecycle
from tests.samples.claims import allocated, allocated_share, claim
from tests.unit.kubelet_plugin.claims.world import DRIVER, NODE, OTHER, TRAIN, body, record_of

BODIES = {TRAIN: body(TRAIN, "gpu-0"), OTHER: body(OTHER, "gpu-1")}


class Plugin:
    """A plugin process, and what it heard of its record."""

    def __init__(self, folder: Path) -> None:
        self.heard: list[set[str]] = []
        self.claims: ClaimLifecycle = lifecycle(
            folder,
            driver=DRIVER,
            pool=NODE,
            boot_id="boot-1",
            read_claim=lambda reference, _: BODIES[reference],
            read_kubelet_record=lambda: record_of(TRAIN, OTHER),
            preparer=FakePreparer(),
            reporter=FakeReporter(),
            on_change=self._hear,
        )

    def _hear(self, claims: Collection[NodeClaim]) -> None:
        self.heard.append({claim.name for claim in claims})


@pytest.fixture
def plugin(tmp_path: Path) -> Plugin:
    return Plugin(tmp_path)


def test_the_claims_are_reported_when_they_are_first_known_also_if_there_are_none(
    plugin: Plugin,
) -> None:
    plugin.claims.repair()
    assert plugin.heard == [set()]


def test_each_change_is_reported_once(plugin: Plugin) -> None:
    plugin.claims.repair()
    for _ in range(2):
        plugin.claims.prepare(TRAIN, PATIENT)
        plugin.claims.repair()
    plugin.claims.unprepare(TRAIN, PATIENT)

    assert plugin.heard == [set(), {"train"}, set()]


def test_a_change_by_another_process_is_reported_when_the_record_is_next_used(
    plugin: Plugin, tmp_path: Path
) -> None:
    plugin.claims.prepare(TRAIN, PATIENT)
    Plugin(tmp_path).claims.prepare(OTHER, PATIENT)
    plugin.claims.repair()

    assert plugin.heard[-1] == {"train", "other"}


def test_a_claim_uses_its_devices_except_with_admin_access() -> None:
    share = allocated_share("gpu-1-share", share_id="one", memory="1Gi", cores=10)
    devices = (allocated("gpu-0"), share, allocated("gpu-2", admin_access=True))

    consumed = {"memory": Quantity.of(2**30), "cores": Quantity.of(10)}
    assert claim(*devices).uses == (DeviceUse("gpu-0"), DeviceUse("gpu-1-share", consumed))
