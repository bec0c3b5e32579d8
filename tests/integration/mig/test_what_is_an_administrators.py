"""Carina changes only what it made, also when an administrator acts at the same moment."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pynvml
import pytest

from kubelet_plugin.claims.failure import ClaimError
from simulation.nvml import uninstall
from tests.fakes.nvml_calls import nvml_calls
from tests.integration.mig.agreement import TwoGpus
from tests.integration.mig.situations import PART, WHOLE


@pytest.fixture
def node(tmp_path: Path) -> Iterator[TwoGpus]:
    node = TwoGpus.create(tmp_path)
    node.look()
    yield node
    uninstall()


def once_before(symbol: str, act: Callable[[], object]) -> Callable[[int, str], None]:
    """Acts once, just before the first call of the function."""
    acts = iter([act])

    def at(_number: int, called: str) -> None:
        if called == symbol:
            for one in acts:
                one()

    return at


def test_an_instance_made_at_the_same_moment_at_the_same_placement_is_left(node: TwoGpus) -> None:
    node.prepare("first", PART)
    node.unprepare("first")
    makes = once_before(
        "nvmlDeviceCreateGpuInstanceWithPlacement", lambda: node.admin_makes(0, 19, 6, 1)
    )

    with (
        nvml_calls(node.simulated.directory, makes),
        pytest.raises(ClaimError, match="INSUFFICIENT_RESOURCES"),
    ):
        node.prepare("train", PART)
    node.repair()

    assert [one.start for one in node.instances(0)] == [6]
    assert node.recorded() == {}


def test_a_mode_that_is_switched_on_after_carina_could_not_is_left(node: TwoGpus) -> None:
    node.simulated.run_process(0, 4711)
    with pytest.raises(ClaimError, match="IN_USE"):
        node.prepare("train", PART)
    node.simulated.end_process(0, 4711)

    node.admin_switches(0, on=True)
    node.repair()

    assert node.is_mig_on(0)


def test_an_instance_that_an_administrator_destroyed_is_made_again_by_the_repair(
    node: TwoGpus,
) -> None:
    node.prepare("train", PART)
    (instance,) = node.instances(0)
    node.admin_destroys(0, instance.id)

    node.repair()

    assert node.instances(0) == (instance,)


def test_a_claim_whose_instance_an_administrator_destroyed_can_be_unprepared(
    node: TwoGpus,
) -> None:
    node.prepare("train", PART)
    (instance,) = node.instances(0)
    node.admin_destroys(0, instance.id)

    node.unprepare("train")

    assert node.recorded().get(node.simulated.state.gpus[0].uuid, set()) == set()
    assert node.specs() == set()


def test_an_instance_that_is_destroyed_while_carina_destroys_it_is_not_forgotten_too_early(
    node: TwoGpus,
) -> None:
    node.prepare("train", PART)

    def destroy_compute_instance() -> None:
        instance = pynvml.nvmlDeviceGetGpuInstanceById(node.handle(0), node.instances(0)[0].id)
        pynvml.nvmlComputeInstanceDestroy(pynvml.nvmlGpuInstanceGetComputeInstanceById(instance, 0))

    destroys = once_before("nvmlComputeInstanceDestroy", destroy_compute_instance)
    with nvml_calls(node.simulated.directory, destroys), pytest.raises(ClaimError):
        node.unprepare("train")
    assert len(node.instances(0)) == 1
    node.unprepare("train")

    assert node.instances(0) == ()


def test_a_claim_for_a_whole_gpu_in_use_in_mig_mode_can_be_unprepared(node: TwoGpus) -> None:
    node.prepare("part", PART)
    node.unprepare("part")
    node.simulated.run_process(0, 4711)
    with pytest.raises(ClaimError, match=r"MIG mode .*cannot be switched off.*IN_USE"):
        node.prepare("whole", WHOLE)

    node.unprepare("whole")

    assert node.claims_recorded() == {}
    node.prepare("part")
    assert len(node.instances(0)) == 1


def test_a_lost_gpu_that_comes_back_in_mig_mode_is_whole_again(node: TwoGpus) -> None:
    node.prepare("part", PART)
    node.simulated.lose_gpu(0)
    node.unprepare("part")
    node.repair()
    node.simulated.reset_gpu(0)
    assert node.is_mig_on(0)

    node.repair()  # finds that the instance is gone
    node.repair()

    assert not node.is_mig_on(0)
    node.prepare("whole", WHOLE)


def test_admin_access_to_a_partition_is_refused_and_changes_nothing(node: TwoGpus) -> None:
    node.prepare("whole", WHOLE)
    node.admins.add("watch")

    with pytest.raises(ClaimError, match="select devices of type monitor"):
        node.prepare("watch", PART)

    assert not node.is_mig_on(0)
    assert node.specs() == {"whole"}


def test_admin_access_to_a_whole_gpu_leaves_its_mig_mode(node: TwoGpus) -> None:
    node.prepare("part", PART)
    node.admins.add("watch")
    node.prepare("watch", WHOLE)
    node.unprepare("part")

    node.prepare("watch")
    node.unprepare("watch")

    assert node.is_mig_on(0)
    node.repair()
    assert not node.is_mig_on(0)
