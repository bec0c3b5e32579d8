"""Any sequence of calls, kills, failures, reboots and drift ends with what the live claims say.

The claims' lifecycle, checkpoint, locks and reconciling are the real ones; only the kinds of what
claims need are made up, so that nothing here holds for one kind alone.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubelet_plugin.claims.checkpoint_file import CheckpointFile
from kubelet_plugin.claims.claim import ClaimReference, NodeClaim, PreparedDevice
from kubelet_plugin.claims.failure import ClaimError
from kubelet_plugin.claims.kubelet_record import KubeletRecord
from kubelet_plugin.claims.lifecycle import ClaimLifecycle
from kubelet_plugin.prepare.preparer import Preparer
from kubelet_plugin.prepare.resource import ResourceError
from tests.fakes.claims import PATIENT, FakeReporter
from tests.fakes.lifecycle import lifecycle
from tests.samples.resource_failures import BUSY
from tests.unit.kubelet_plugin.prepare.made_up_kinds import MadeUpNode, identities, wanted

CLAIMS = tuple(ClaimReference(f"uid-{n}", "default", f"claim-{n}") for n in range(3))
Trouble: TypeAlias = Literal["kill", "fail"] | None


Call: TypeAlias = Callable[[ClaimLifecycle], object]


class KilledError(BaseException):
    """The process was killed here."""


def _answer(_: NodeClaim) -> tuple[PreparedDevice, ...]:
    return ()


@dataclass
class World:
    """A node, the API's allocations, and a plugin that is started again after each kill."""

    folder: Path
    node: MadeUpNode = field(default_factory=MadeUpNode)
    gpus: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """What is allocated, by the UID of the claim: a share of each of these GPUs."""
    boot: int = 0

    def __post_init__(self) -> None:
        self.plugin = self._started()

    def _started(self) -> ClaimLifecycle:
        return lifecycle(
            self.folder,
            driver="driver",
            pool="node",
            boot_id=f"boot-{self.boot}",
            read_claim=self._read,
            read_kubelet_record=lambda: KubeletRecord({claim.uid: claim for claim in CLAIMS}),
            preparer=Preparer(
                self.node,
                identities=identities,
                wanted=lambda claims, _: wanted(claims),
                answer=_answer,
            ),
            reporter=FakeReporter(),
        )

    def _read(self, claim: ClaimReference, _: float) -> Mapping[str, Any]:
        results = [
            {
                "request": f"r{index}",
                "driver": "driver",
                "pool": "node",
                "device": f"{gpu}-share",
                "shareID": f"{claim.uid}-{index}",
                "consumedCapacity": {"memory": "1Gi", "cores": "1"},
            }
            for index, gpu in enumerate(self.gpus.get(claim.uid, ("gpu-0",)))
        ]
        return {
            "metadata": {"namespace": claim.namespace, "name": claim.name, "uid": claim.uid},
            "spec": {"devices": {"requests": []}},
            "status": {"allocation": {"devices": {"results": results}}},
        }

    def recorded(self) -> Mapping[str, NodeClaim]:
        checkpoint = CheckpointFile(self.folder / "checkpoint.jsonl").load()
        return {} if checkpoint is None else checkpoint.claims

    def carry_out(
        self, call: Callable[[ClaimLifecycle], object], at: int, trouble: Trouble
    ) -> bool:
        """Makes a call, with trouble at one of its steps; whether it succeeded."""
        left = at

        def step() -> None:
            nonlocal left
            left -= 1
            if left == 0 and trouble == "kill":
                raise KilledError
            if left == 0 and trouble == "fail":
                raise ResourceError(BUSY)

        self.node.trouble = step
        try:
            call(self.plugin)
        except KilledError:
            self.plugin = self._started()
        except ClaimError:
            pass
        else:
            return True
        finally:
            self.node.trouble = lambda: None
        return False

    def reboot(self) -> None:
        self.node.reboot()
        self.boot += 1
        self.plugin = self._started()


@contextmanager
def world() -> Iterator[World]:
    with tempfile.TemporaryDirectory() as folder:
        yield World(Path(folder))


GPUS = st.sampled_from([("gpu-0",), ("gpu-1",), ("gpu-0", "gpu-1"), ("gpu-1", "gpu-1")])
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["prepare", "unprepare", "allocate", "reboot", "drift", "repair"]),
        st.sampled_from(CLAIMS),
        GPUS,
        st.integers(1, 12),
        st.sampled_from(["kill", "fail", None]),
    ),
    min_size=1,
    max_size=12,
)


def do(node: World, step: Any, prepared: set[str]) -> None:
    """Takes one step, and keeps which claims were answered to be prepared."""
    operation, claim, gpus, at, trouble = step
    match operation:
        case "prepare":
            if node.carry_out(lambda plugin: plugin.prepare(claim, PATIENT), at, trouble):
                prepared.add(claim.uid)
        case "unprepare":
            if node.carry_out(lambda plugin: plugin.unprepare(claim, PATIENT), at, trouble):
                prepared.discard(claim.uid)
                assert claim.uid not in node.recorded()
        case "allocate":
            node.gpus[claim.uid] = gpus
        case "reboot":
            node.reboot()
        case "drift":
            node.node.parts.pop(next(iter(node.node.parts), ""), None)
            node.node.files.clear()
        case "repair":
            node.carry_out(lambda plugin: plugin.repair(), at, trouble)
        case _:
            raise AssertionError(operation)


@settings(max_examples=100)
@given(STEPS)
def test_any_sequence_ends_with_what_the_live_claims_say(steps: list[Any]) -> None:
    with world() as node:
        prepared: set[str] = set()
        for step in steps:
            do(node, step, prepared)
            unprepared = step[1].uid if step[0] == "unprepare" else ""
            assert prepared - {unprepared} <= node.recorded().keys()
        node.plugin.repair()
        node.node.assert_holds(list(node.recorded().values()))
        for claim in CLAIMS:
            node.plugin.prepare(claim, PATIENT)
        node.node.assert_holds(list(node.recorded().values()))
        for claim in CLAIMS:
            node.plugin.unprepare(claim, PATIENT)
        node.plugin.repair()
        node.node.assert_holds([])


@pytest.mark.parametrize("completing", ["repair", "call again"])
@pytest.mark.parametrize("trouble", ["kill", "fail"])
@pytest.mark.parametrize("operation", ["prepare", "change", "unprepare"])
def test_trouble_at_every_single_step_loses_nothing(
    operation: str, trouble: Trouble, completing: str
) -> None:
    first, second, _ = CLAIMS
    for at in range(1, 100):
        with world() as node:
            node.gpus = {first.uid: ("gpu-0",), second.uid: ("gpu-0", "gpu-1")}
            node.plugin.prepare(first, PATIENT)
            if operation != "prepare":
                node.plugin.prepare(second, PATIENT)
            if operation == "change":
                node.gpus[second.uid] = ("gpu-1", "gpu-2")

            def call(plugin: ClaimLifecycle) -> None:
                if operation == "unprepare":
                    plugin.unprepare(second, PATIENT)
                else:
                    plugin.prepare(second, PATIENT)

            if node.carry_out(call, at, trouble):
                assert at > 4, "too few steps were tried"
                return
            if completing == "repair":
                node.plugin.repair()
                node.node.assert_holds(list(node.recorded().values()))
            with suppress(ClaimError):
                call(node.plugin)
            node.node.assert_holds(list(node.recorded().values()))
            assert (second.uid in node.recorded()) == (operation != "unprepare")
    raise AssertionError("the call never ends")
