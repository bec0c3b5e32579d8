"""When strangers on a GPU are a reason to read its claims again."""

from itertools import pairwise

from carina_dra.sharing.message import Strangers
from kubelet_plugin.sharing.claim_pods import StrangerWatch


def strangers(processes: int = 1, gpu: str = "GPU-0") -> tuple[Strangers, ...]:
    return (Strangers(gpu=gpu, processes=processes, memory_mib=1),)


def test_the_first_are_one_at_once() -> None:
    assert StrangerWatch().due(strangers(), 5.0) == {"GPU-0"}


def test_the_same_are_one_again_twice_as_late_each_time_up_to_ten_minutes() -> None:
    watch = StrangerWatch()
    times = [second for second in range(3000) if watch.due(strangers(), float(second))]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert gaps == [4, 8, 16, 32, 64, 128, 256, 512, 600, 600, 600]


def test_more_of_them_are_one_after_ten_seconds() -> None:
    watch = StrangerWatch()
    for now in (0.0, 4.0, 12.0):
        assert watch.due(strangers(), now)
    assert not watch.due(strangers(2), 21.9)
    assert watch.due(strangers(2), 22.0)


def test_more_of_them_are_one_soon_after_the_first() -> None:
    watch = StrangerWatch()
    watch.due(strangers(), 0.0)
    assert not watch.due(strangers(2), 3.9)
    assert watch.due(strangers(2), 4.0)


def test_fewer_of_them_are_not_more() -> None:
    watch = StrangerWatch()
    for now in (0.0, 4.0, 12.0):
        assert watch.due(strangers(2), now)
    assert not watch.due(strangers(1), 27.9)


def test_after_a_read_that_was_of_use_they_are_one_soon() -> None:
    watch = StrangerWatch()
    for now in (0.0, 4.0, 12.0):
        assert watch.due(strangers(), now)
    watch.found_pods()
    assert not watch.due(strangers(), 13.9)
    assert watch.due(strangers(), 14.0)


def test_a_gpu_that_is_not_shared_any_more_is_forgotten() -> None:
    watch = StrangerWatch()
    for gpu in ("GPU-0", "GPU-1"):
        watch.due(strangers(gpu=gpu), 0.0)
    watch.keep({"GPU-1"})
    assert watch.due((*strangers(gpu="GPU-0"), *strangers(gpu="GPU-1")), 1.0) == {"GPU-0"}
