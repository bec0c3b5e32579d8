"""When the MIG instances of a GPU are read again."""

from collections.abc import Mapping

import pytest

from carina_dra.nvidia.nvml_library import NvmlSession
from kubelet_plugin.inventory.mig import ComputeInstance, GpuInstance, MigPlacement, MigSite
from kubelet_plugin.nvml.instance_cache import InstanceCache

ONE = (GpuInstance(3, MigSite(19, MigPlacement(0, 1)), (ComputeInstance(0, 1, "MIG-0"),)),)
SHOWN = {"gi3": 7, "gi3/ci0": 8}
AGAIN = {"gi3": 7, "gi3/ci0": 9}
"""Its compute instance was made again."""


class Looks:
    """Looks at the instances of GPUs, and which of them read."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.cache = InstanceCache(lambda: self.now)
        self.session = NvmlSession(None)
        self.cache.begin(self.session)
        self.found = ONE

    def reads(self, shown: Mapping[str, object] | None = SHOWN, gpu: str = "GPU-0") -> bool:
        """Looks once; gives whether it read."""
        reads = []

        def read() -> tuple[GpuInstance, ...]:
            reads.append(gpu)
            return self.found

        assert self.cache.instances(gpu, shown, read) == self.found
        return bool(reads)


@pytest.fixture
def looks() -> Looks:
    return Looks()


def test_the_same_instances_are_read_once(looks: Looks) -> None:
    assert [looks.reads() for _ in range(3)] == [True, False, False]


def test_each_gpu_has_its_own(looks: Looks) -> None:
    assert looks.reads()
    assert looks.reads(gpu="GPU-1")
    assert not looks.reads()


def test_an_instance_that_was_made_again_is_read_again(looks: Looks) -> None:
    assert [looks.reads(), looks.reads(AGAIN), looks.reads(AGAIN)] == [True, True, False]


def test_instances_are_read_again_after_five_minutes(looks: Looks) -> None:
    looks.reads()
    looks.now += 299.9
    assert not looks.reads()
    looks.now += 0.1
    assert [looks.reads(), looks.reads()] == [True, False]


def test_instances_are_read_again_in_a_new_session_and_not_at_each_look(looks: Looks) -> None:
    looks.reads()
    looks.cache.begin(looks.session)
    assert not looks.reads()
    looks.cache.begin(NvmlSession(None))
    assert looks.reads()


def test_a_gpu_that_is_forgotten_is_read_again_alone(looks: Looks) -> None:
    for gpu in ("GPU-0", "GPU-1"):
        looks.reads(gpu=gpu)
    looks.cache.forget("GPU-0")
    looks.cache.forget("GPU-2")
    assert [looks.reads(gpu="GPU-0"), looks.reads(gpu="GPU-1")] == [True, False]


@pytest.mark.parametrize(
    "shown", [None, {}, {"gi3": 7}, {"gi3/ci0": 8}, {**SHOWN, "gi4": 9}], ids=str
)
def test_instances_that_the_kernel_does_not_show_so_are_read_at_each_look(
    looks: Looks, shown: Mapping[str, object] | None
) -> None:
    assert [looks.reads(shown), looks.reads(shown)] == [True, True]


def test_a_read_that_fails_leaves_nothing_known(looks: Looks) -> None:
    looks.reads()

    def fails() -> tuple[GpuInstance, ...]:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        looks.cache.instances("GPU-0", AGAIN, fails)
    assert looks.reads()
