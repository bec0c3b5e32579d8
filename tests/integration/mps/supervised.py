"""A node with carina-sharing, as the plugin sees it: what it says of the recorded daemons."""

import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from carina_dra.sharing.message import MpsDaemon, Offers, SharingReport, WantedDaemon
from kubelet_plugin.inventory.share_guard import ShareGuard
from kubelet_plugin.prepare.daemon_records import DaemonRecord, DaemonRecords
from kubelet_plugin.sharing.supervision import Supervision
from tests.integration.mig.agreement import TwoGpus

SHARE: Final = "gpu-0-share"
OTHER_SHARE: Final = "gpu-1-share"
DRIVER: Final = "550.163.01"
DEMANDS_MPS: Final = {"kind": "ShareConfig", "enforcement": {"memory": "mps"}}
GIB: Final = 1024
"""In MiB: what a share of a claim has."""

Behaviour = Literal["runs", "away", "fails", "slow", "silent", "runs none", "ends slowly"]


@dataclass
class Supervised(TwoGpus):
    """The node. What carina-sharing has is in its folders, so that it outlives each call."""

    sharing: Behaviour = "runs"

    def reserve(self, claim: str, *devices: str, config: Mapping[str, Any] = DEMANDS_MPS) -> None:
        """Has a claim allocated, with a share of each of the devices."""
        self.allocations[claim] = devices or (SHARE,)
        self.configs[claim] = config

    def guard(self, _: str) -> ShareGuard:
        """It offers MPS."""
        return ShareGuard(mps=True)

    def supervision(self) -> Supervision:
        """What it says to a plugin that has just connected."""
        supervision = Supervision()
        generation = 0

        def look() -> None:
            nonlocal generation
            generation += 1
            changes, wanted = supervision.changes, self.records().wanted()
            if self.sharing == "away":
                return
            report = self._report(generation - (self.sharing == "silent"), wanted)
            supervision.heard(report)
            supervision.told(changes, generation)

        supervision.attend(look)
        look()
        return supervision

    def records(self) -> DaemonRecords:
        """What the plugin records."""
        return DaemonRecords(self.folder / "mps-daemons", self._boot_id)

    def daemon_record(self, claim: str) -> DaemonRecord | None:
        """What it records for a claim."""
        return self.records().read(claim)

    def daemons(self) -> set[str]:
        """The claims whose daemon runs."""
        folder = self.folder / "mps"
        return {daemon.name for daemon in folder.iterdir()} if folder.exists() else set()

    def edits(self, claim: str) -> Any:
        """What the containers of a claim get with its first device."""
        return self.spec(claim)["devices"][0]["containerEdits"]

    def variables(self, claim: str) -> dict[str, str]:
        """Its variables, by the word that follows the share's ID, else by their names."""
        split = (text.partition("=") for text in self.edits(claim)["env"])
        return {re.sub(r".*_SHARE_[0-9a-f_]+_", "", name): value for name, _, value in split}

    def _report(self, generation: int, wanted: tuple[WantedDaemon, ...]) -> SharingReport:
        if self.sharing == "runs none":
            return SharingReport(generation=generation, time=1.0, offers=Offers(no_mps="no driver"))
        folder = self.folder / "mps"
        for daemon in wanted:
            (folder / daemon.claim.uid / "ipc").mkdir(parents=True, exist_ok=True)
        for gone in self.daemons() - {daemon.claim.uid for daemon in wanted}:
            if self.sharing != "ends slowly":
                shutil.rmtree(folder / gone)
        return SharingReport(
            generation=generation,
            time=1.0,
            offers=Offers(no_mps=None),
            daemons=tuple(self._daemon(daemon) for daemon in wanted),
        )

    def _daemon(self, wanted: WantedDaemon) -> MpsDaemon:
        if self.sharing == "fails":
            return MpsDaemon(wanted=wanted, state="failed", reason="it has the wrong limit")
        return MpsDaemon(wanted=wanted, state="starting" if self.sharing == "slow" else "ready")
