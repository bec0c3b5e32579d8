"""What is set in an MPS daemon, and which answers say that it is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carina_dra.sharing.message import MpsDevice, Reference, WantedDaemon
from sharing.mps.setting import MpsMemoryLimit, MpsThreadPercentage, settings

CLAIM = Reference(namespace="default", name="a", uid="uid-a")


def test_each_device_with_a_limit_has_it_by_its_number() -> None:
    devices = (
        MpsDevice(uuid="GPU-a", memory_mib=1000),
        MpsDevice(uuid="GPU-b", memory_mib=None),
        MpsDevice(uuid="GPU-c", memory_mib=2000),
    )
    wanted = WantedDaemon(claim=CLAIM, devices=devices, thread_percentage=40)
    assert [setting.set_command for setting in settings(wanted)] == [
        "set_default_device_pinned_mem_limit 0 1000M",
        "set_default_device_pinned_mem_limit 2 2000M",
        "set_default_active_thread_percentage 40",
    ]


def test_without_limits_nothing_is_set() -> None:
    devices = (MpsDevice(uuid="GPU-a", memory_mib=None),)
    wanted = WantedDaemon(claim=CLAIM, devices=devices, thread_percentage=None)
    assert not list(settings(wanted))


@pytest.mark.parametrize(
    ("mib", "answer"),
    [
        (10240, "10G\n"),
        (1024, "1024M"),
        (1024, "1G"),
        (10000, "9G"),
        (10000, "10000 MiB"),
        (1536, "1.5GB"),
        (512, "536870912"),
        (512, "524288K"),
        (2097152, "2T"),
        (1000, "1000m"),
    ],
)
def test_these_answers_say_the_limit(mib: int, answer: str) -> None:
    assert MpsMemoryLimit(0, mib).problem(answer) is None


@pytest.mark.parametrize(
    ("mib", "answer"),
    [
        (10000, "10G"),
        (10240, "9G"),
        (10240, "11G"),
        (1000, "999M"),
        (1000, "1001M"),
        (1000, "0G1"),
        (1000, ""),
        (1000, "Unlimited"),
        (1000, "-1000M"),
        (1000, "device 0 not found"),
        (1000, "1000M\n1000M"),
        (1000, "1e3M"),
        (1000, "٣M"),
    ],
)
def test_these_answers_do_not(mib: int, answer: str) -> None:
    problem = MpsMemoryLimit(3, mib).problem(answer)
    assert problem is not None
    assert f"the memory limit of device 3 was set to {mib}M" in problem


@given(mib=st.integers(1, 2**22), said=st.integers(1, 2**22))
def test_a_limit_in_mib_is_exact(mib: int, said: int) -> None:
    assert (MpsMemoryLimit(0, mib).problem(f"{said}M") is None) == (mib == said)


@given(mib=st.integers(1024, 2**22), said=st.integers(1, 2**12))
def test_a_limit_in_gib_is_rounded_down(mib: int, said: int) -> None:
    assert (MpsMemoryLimit(0, mib).problem(f"{said}G") is None) == (mib // 1024 == said)


@pytest.mark.parametrize("answer", ["50.0", "50", "50.000000\n", "50%", "50.0 %"])
def test_these_answers_say_the_percentage(answer: str) -> None:
    assert MpsThreadPercentage(50).problem(answer) is None


@pytest.mark.parametrize("answer", ["100.0", "51", "49", "", "fifty", "nan", "50.0\n50.0"])
def test_these_answers_say_another_percentage(answer: str) -> None:
    problem = MpsThreadPercentage(50).problem(answer)
    assert problem is not None
    assert "the active thread percentage was set to 50" in problem


@given(answer=st.text(max_size=3000))
def test_every_answer_has_a_short_problem_or_none(answer: str) -> None:
    for setting in (MpsMemoryLimit(0, 1000), MpsThreadPercentage(50)):
        assert len(setting.problem(answer) or "") < 1000
