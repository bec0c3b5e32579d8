"""The problems that follow from what NVML says and from the XIDs that are remembered."""

from dataclasses import replace
from datetime import datetime, timedelta
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carina_dra.nvidia.nvml_failure import NvmlFailure
from kubelet_plugin.devices.publish_settings import DEFAULT_EVICT
from kubelet_plugin.devices.taint import taints
from kubelet_plugin.inventory.diagnosis import HealthMemory, diagnosed
from kubelet_plugin.inventory.faults import MOST, Fault, Faults, remembered, severity_of
from kubelet_plugin.inventory.gpu import ObservedGpu
from kubelet_plugin.inventory.health import (
    HEALTHY,
    PROBLEMS,
    GpuProblems,
    GpuUnreadable,
    in_order,
    is_unanswered,
    state,
)
from kubelet_plugin.inventory.inventory import DriverReady
from kubelet_plugin.inventory.mig import MigPlacement, MigSite
from kubelet_plugin.inventory.signals import Fabric, Signals, Slowdown
from kubelet_plugin.inventory.xid import XidRules, is_benign
from kubelet_plugin.inventory.xid_catalogue import BY_ACTION_ONLY, LAST, XidSeverity
from tests.samples.gpus import LOST, NOTICED, UNREADABLE, gpu, observed

RULES = XidRules()
UUID = gpu(0).uuid
SITE = MigSite(9, MigPlacement(0, 4))
OTHER_SITE = MigSite(9, MigPlacement(4, 4))
BOOT, NEXT_BOOT = "boot-1/7", "boot-2/7"
WELL = Signals(recovery_action=0)
"""What a driver with recovery actions says of a GPU that is well."""


def seen(
    signals: Signals = Signals(),  # noqa: B008 - a value
    *problems: Any,
    minor: int = 0,
    binding: str = BOOT,
    **facts: Any,
) -> ObservedGpu:
    plain = observed(minor, *problems, **{"architecture": "Hopper", **facts})
    return replace(plain, state=replace(plain.state, signals=signals, binding=binding))


def at(seconds: float) -> datetime:
    return NOTICED + timedelta(seconds=seconds)


def fault(xid: int, seconds: float = 0, site: MigSite | None = None) -> Fault:
    return Fault(xid, site, at(seconds), at(seconds), 1, BOOT)


def faults(*known: Fault) -> Faults:
    found: Faults = {}
    for one in known:
        found = remembered(found, one, RULES, gpu(0))
    return found


class Node:
    """GPUs of which a test says what is read."""

    def __init__(self, *known: Fault) -> None:
        self.memory = HealthMemory({UUID: faults(*known)})
        self.cleared: dict[str, datetime] = {}

    def look(self, *gpus: ObservedGpu, seconds: float = 100) -> list[GpuProblems]:
        inventory, self.memory = diagnosed(
            DriverReady(gpus), self.memory, RULES, self.cleared, at(seconds)
        )
        return [known.state.problems for known in inventory.gpus]

    def reasons(self, *gpus: ObservedGpu, seconds: float = 100) -> list[tuple[str, str]]:
        """State and reason of the problems of the first GPU, the worst first."""
        problems = self.look(*gpus, seconds=seconds)[0]
        return [(problem.state, problem.reason) for problem in in_order(problems)]


# --- what NVML says now ---


@pytest.mark.parametrize(
    ("action", "found"),
    [
        (0, []),
        (1, ["needs-reset"]),
        (2, ["needs-reboot"]),
        (3, ["drain"]),
        (4, ["drain"]),
        (5, ["degraded"]),
        (6, ["needs-reset"]),
        (7, ["needs-reboot"]),
        (8, ["needs-reset"]),
        (99, ["needs-reset"]),
    ],
)
def test_the_recovery_action_decides(action: int, found: list[str]) -> None:
    expected = [(state, f"recovery-action-{action}") for state in found]
    assert Node().reasons(seen(Signals(recovery_action=action))) == expected


@pytest.mark.parametrize(
    ("signals", "found"),
    [
        ({"rows_failed": True}, ("memory-failed", "row-remap-failure")),
        ({"memory_unrepairable": True}, ("memory-failed", "memory-unrepairable")),
        ({"sram_threshold_exceeded": True}, ("memory-failed", "sram-threshold")),
        ({"rows_pending": True}, ("degraded", "row-remap-pending")),
        ({"repair_pending": True}, ("degraded", "repair-pending")),
        ({"fabric": Fabric.UNHEALTHY}, ("fabric", "fabric-unhealthy")),
        ({"fabric": Fabric.JOINING}, ("fabric", "fabric-not-joined")),
        ({"fabric": Fabric.REFUSED}, ("fabric", "fabric-join-failed")),
        ({"fabric": Fabric.LIMITED}, ("degraded", "fabric-limited")),
        ({"slowdowns": frozenset({Slowdown.POWER_BRAKE})}, ("degraded", "hw-power-brake")),
    ],
    ids=lambda value: value[1] if isinstance(value, tuple) else "",
)
def test_each_signal_is_a_problem(signals: dict[str, Any], found: tuple[str, str]) -> None:
    assert Node().reasons(seen(Signals(recovery_action=0, **signals))) == [found]
    assert Node().reasons(seen(Signals(**signals))) == [found]


@pytest.mark.parametrize("fabric", [Fabric.ABSENT, Fabric.HEALTHY])
def test_a_gpu_that_is_well_has_no_problem(fabric: Fabric) -> None:
    assert Node().look(seen(Signals(0, fabric=fabric))) == [HEALTHY]


@pytest.mark.parametrize("action", [2, 7])
def test_a_reboot_of_the_node_concerns_all_its_gpus(action: int) -> None:
    node = Node()
    found = node.look(
        seen(WELL), seen(Signals(recovery_action=action), minor=1), seen(WELL, minor=2)
    )

    assert [state(problems) for problems in found] == ["needs-reboot"] * 3
    assert gpu(1).uuid in str(in_order(found[0])[0])
    assert node.look(seen(WELL), seen(WELL, minor=1), seen(WELL, minor=2)) == [HEALTHY] * 3


@pytest.mark.parametrize("action", [1, 3, 4, 5, 6])
def test_another_action_concerns_its_gpu(action: int) -> None:
    found = Node().look(seen(Signals(recovery_action=action)), seen(WELL, minor=1))
    assert found[0]
    assert found[1] == HEALTHY


def test_a_problem_says_what_the_driver_asks_for() -> None:
    (problem,) = Node().look(seen(Signals(recovery_action=6)))[0]
    assert str(problem) == "needs a reset of its PCIe bus (recovery action 6)"


@given(st.frozensets(st.sampled_from(Slowdown), min_size=1))
def test_of_several_slowdowns_always_the_same_is_the_reason(slowdowns: frozenset[Slowdown]) -> None:
    assert Node().reasons(seen(Signals(slowdowns=slowdowns))) == [("degraded", min(slowdowns))]


def test_an_action_that_changes_is_followed() -> None:
    node = Node()
    states = [state(node.look(seen(Signals(recovery_action=action)))[0]) for action in (0, 4, 1, 0)]
    assert states == ["ready", "drain", "needs-reset", "ready"]


def test_a_problem_that_lasts_keeps_its_time_and_reason() -> None:
    node = Node()
    first = node.look(seen(Signals(recovery_action=1)), seconds=0)
    assert node.look(seen(Signals(recovery_action=1)), seconds=60) == first


def test_xids_explain_the_action() -> None:
    node = Node(fault(95), fault(64), fault(46))
    (problem,) = node.look(seen(Signals(recovery_action=1)), seconds=10)[0]
    assert str(problem) == "needs a reset (recovery action 1) after XID 46, 64, 95"
    assert problem.reason == "recovery-action-1"


# --- XIDs ---


def test_without_an_action_an_xid_decides() -> None:
    assert Node(fault(95)).reasons(seen()) == [("needs-reset", "xid-95")]


@pytest.mark.parametrize(
    ("xid", "state"), [(78, "degraded"), (54, "drain"), (62, "needs-reset"), (79, "needs-reboot")]
)
def test_the_severity_of_an_xid_is_the_state(xid: int, state: str) -> None:
    assert Node(fault(xid)).reasons(seen()) == [(state, f"xid-{xid}")]


def test_reports_of_one_xid_are_one_fault_from_the_first_to_the_last() -> None:
    for order in permutations([fault(95), fault(95, 20), fault(95, 50)]):
        (known,) = faults(*order).values()
        assert (known.first, known.last, known.count) == (at(0), at(50), 3)


def test_with_an_action_no_xid_decides_but_that_of_a_gpu_off_the_bus() -> None:
    assert Node(fault(95)).reasons(seen(WELL)) == []
    assert Node(fault(79)).reasons(seen(WELL)) == [("needs-reboot", "xid-79")]


def test_with_an_action_an_earlier_xid_does_not_hide_that_of_a_gpu_off_the_bus() -> None:
    assert Node(fault(95), fault(79, 1)).reasons(seen(WELL)) == [("needs-reboot", "xid-79")]


def test_an_error_of_an_application_in_an_instance_is_no_problem() -> None:
    assert Node(fault(31, site=SITE)).reasons(seen()) == []


@pytest.mark.parametrize(
    ("first", "other"), [(fault(94, site=SITE), None), (fault(48), fault(63))], ids=["94", "48"]
)
@pytest.mark.parametrize("severity", [XidSeverity.REBOOT, XidSeverity.REPLACE])
def test_a_severity_that_the_settings_give_counts_whatever_came_with_the_xid(
    first: Fault, other: Fault | None, severity: XidSeverity
) -> None:
    rules = XidRules({first.xid: severity})
    known = faults(first, *([] if other is None else [other]))
    assert severity_of(first, known, gpu(0), rules) is severity


@pytest.mark.parametrize("xid", sorted(BY_ACTION_ONLY))
def test_an_error_of_nvlink_is_nothing_without_the_action(xid: int) -> None:
    blackwell: dict[str, Any] = {"architecture": "Blackwell"}
    assert Node(fault(xid)).reasons(seen(**blackwell)) == []
    asked = seen(Signals(recovery_action=1), **blackwell)
    assert Node(fault(xid)).reasons(asked) == [("needs-reset", "recovery-action-1")]


@pytest.mark.parametrize(
    ("known", "found"),
    [
        ((fault(45),), []),
        ((fault(45), fault(48, 3)), [("needs-reset", "xid-48")]),
        ((fault(48), fault(63, 3)), [("drain", "xid-48")]),
        ((fault(63), fault(48, 30)), [("drain", "xid-48")]),
        ((fault(48), fault(63, 30)), [("drain", "xid-48")]),
        ((fault(48), fault(63, 31)), [("needs-reset", "xid-48")]),
        ((fault(63), fault(48, 31)), [("needs-reset", "xid-48")]),
        ((fault(63), fault(64, 5)), [("needs-reset", "xid-64")]),
        ((fault(48), fault(64, 3)), [("needs-reset", "xid-48")]),
        ((fault(94, site=SITE), fault(95, 5)), [("needs-reset", "xid-95"), ("drain", "xid-94")]),
        ((fault(94),), []),
        ((fault(74),), [("needs-reset", "xid-74")]),
        ((fault(79), fault(95, 1)), [("needs-reboot", "xid-79"), ("needs-reset", "xid-95")]),
    ],
)
def test_xids_that_come_together(known: tuple[Fault, ...], found: list[tuple[str, str]]) -> None:
    for order in permutations(known):
        assert Node(*order).reasons(seen()) == found


def test_a_contained_memory_error_of_an_instance_concerns_that_one() -> None:
    (problems,) = Node(fault(94, site=SITE)).look(seen())
    gpu_state = replace(observed(0).state, problems=problems)

    assert {problem.site for problem in problems} == {SITE}
    assert gpu_state.at(SITE).problems == problems
    assert gpu_state.at(MigSite(19, MigPlacement(3, 1))).problems == problems
    assert gpu_state.at(OTHER_SITE).problems == HEALTHY


def test_an_uncontained_error_concerns_the_whole_gpu_although_it_names_an_instance() -> None:
    (problems,) = Node(fault(95, site=SITE)).look(seen())
    assert {problem.site for problem in problems} == {None}


def test_the_problem_of_a_whole_gpu_concerns_all_instances() -> None:
    (problems,) = Node(fault(95)).look(seen())
    assert replace(observed(0).state, problems=problems).at(OTHER_SITE).problems == problems


def test_with_an_action_the_whole_gpu_drains_after_an_error_of_an_instance() -> None:
    (problems,) = Node(fault(94, site=SITE)).look(seen(Signals(recovery_action=4)), seconds=1)
    assert [(p.state, p.site) for p in problems] == [("drain", None)]


# --- when it is over ---


def test_a_fault_lasts_until_the_gpu_was_reset() -> None:
    node = Node(fault(95))
    assert node.reasons(seen(), seconds=100_000) == [("needs-reset", "xid-95")]
    assert node.reasons(seen(binding=NEXT_BOOT), seconds=100_001) == []
    assert node.memory.faults == {}


@pytest.mark.parametrize("signals", [Signals(rows_pending=True), Signals(recovery_action=1)])
def test_a_fault_lasts_while_the_driver_asks_for_something(signals: Signals) -> None:
    node = Node(fault(95))
    assert node.reasons(seen(signals, binding=NEXT_BOOT))[0][0] == "needs-reset"


def test_a_gpu_off_the_bus_is_not_over_while_the_driver_asks_for_something() -> None:
    asked = seen(Signals(recovery_action=1), binding=NEXT_BOOT)
    assert ("needs-reboot", "xid-79") in Node(fault(79)).reasons(asked)


def test_with_an_action_an_xid_is_kept_while_it_may_explain_what_the_driver_asks_for() -> None:
    node = Node(fault(95))
    node.look(seen(WELL), seconds=59.9)
    assert node.memory.faults
    node.look(seen(Signals(recovery_action=1)), seconds=1000)
    assert node.memory.faults
    node.look(seen(WELL), seconds=1001)
    assert node.memory.faults == {}

    node = Node(fault(95))
    node.look(seen(WELL), seconds=60)
    assert node.memory.faults == {}


def test_a_gpu_that_does_not_answer_keeps_what_was_known() -> None:
    node = Node(fault(95))
    node.look(seen(Signals(rows_failed=True)))
    stale = seen(Signals(), UNREADABLE, binding=NEXT_BOOT)

    assert [found for found, _ in node.reasons(stale)] == [
        "needs-reset",
        "memory-failed",
        "unreadable",
    ]
    assert node.reasons(seen(Signals(rows_failed=True))) == [
        ("needs-reset", "xid-95"),
        ("memory-failed", "row-remap-failure"),
    ]


def test_of_a_gpu_that_does_not_answer_nothing_else_follows() -> None:
    node = Node()
    assert node.reasons(seen(Signals(), LOST)) == [("lost", LOST.reason)]
    assert node.reasons(seen(Signals(), UNREADABLE)) == [("unreadable", UNREADABLE.reason)]


def test_a_gpu_that_has_to_be_replaced_is_cleared_by_an_administrator_alone() -> None:
    node = Node(fault(142))
    blackwell: dict[str, Any] = {"architecture": "Blackwell", "binding": NEXT_BOOT}
    assert node.reasons(seen(**blackwell)) == [("memory-failed", "xid-142")]

    node.cleared = {UUID: at(101)}
    assert node.reasons(seen(**blackwell), seconds=102) == []


def test_a_fault_that_was_reported_again_after_the_clearing_counts() -> None:
    node = Node(fault(95), fault(95, 50))
    node.cleared = {UUID: at(50)}
    assert node.reasons(seen()) == [("needs-reset", "xid-95")]


def test_a_clearing_of_one_gpu_is_of_no_other_and_of_nothing_that_nvml_says() -> None:
    node = Node(fault(95))
    node.cleared = {gpu(1).uuid: at(50)}
    assert node.reasons(seen()) == [("needs-reset", "xid-95")]

    node.cleared = {UUID: at(50)}
    assert node.reasons(seen(Signals(rows_failed=True))) == [("memory-failed", "row-remap-failure")]


def test_the_faults_of_a_gpu_that_is_gone_are_kept() -> None:
    node = Node(fault(95))
    node.look(seen(minor=1))
    assert node.reasons(seen()) == [("needs-reset", "xid-95")]


def test_another_card_at_the_same_address_has_none_of_the_faults() -> None:
    node = Node(fault(95))
    assert node.reasons(seen(uuid="GPU-another")) == []


def test_a_gpu_that_says_that_it_has_to_be_reset_does() -> None:
    refused = GpuUnreadable(NvmlFailure("nvmlDeviceGetUUID", "NVML_ERROR_RESET_REQUIRED"), NOTICED)
    assert [state for state, _ in Node().reasons(seen(Signals(), refused))] == [
        "needs-reset",
        "unreadable",
    ]


# --- invariants ---

XIDS = st.integers(1, LAST + 20)
REPORTS = st.lists(
    st.tuples(XIDS, st.integers(0, 90), st.sampled_from([None, SITE, OTHER_SITE])), max_size=12
)
SIGNALS = st.builds(
    Signals,
    recovery_action=st.sampled_from([None, 0, 0, 1, 2, 3, 4, 5, 6, 7, 9]),
    rows_pending=st.booleans(),
    rows_failed=st.booleans(),
    fabric=st.sampled_from(Fabric),
    slowdowns=st.frozensets(st.sampled_from(Slowdown)),
)
ARCHITECTURES = st.sampled_from(["Turing", "Ampere", "Hopper", "Blackwell", None])


@given(REPORTS, SIGNALS, ARCHITECTURES, st.randoms(use_true_random=False))
def test_the_order_of_xids_does_not_matter(
    reports: list[tuple[int, int, MigSite | None]],
    signals: Signals,
    architecture: str | None,
    random: Any,
) -> None:
    known = [fault(*report) for report in reports]
    shuffled = random.sample(known, len(known))
    look = seen(signals, architecture=architecture)
    assert Node(*known).look(look) == Node(*shuffled).look(look)


@given(st.lists(XIDS, max_size=12), ARCHITECTURES)
def test_no_benign_xid_is_a_taint(numbers: list[int], architecture: str | None) -> None:
    card = gpu(0, architecture=architecture)
    benign = [number for number in numbers if is_benign(RULES.severity(number, card))]
    assert Node(*map(fault, benign)).look(seen(architecture=architecture)) == [HEALTHY]


@given(REPORTS, SIGNALS, ARCHITECTURES)
def test_more_faults_never_make_a_gpu_better(
    reports: list[tuple[int, int, MigSite | None]], signals: Signals, architecture: str | None
) -> None:
    look = seen(signals, architecture=architecture)
    ranks = {kind.state: rank for rank, kind in enumerate(PROBLEMS)}
    worst = len(ranks)
    for count in range(len(reports) + 1):
        known = [fault(*report) for report in reports[:count] if report[0] != 63]
        (problems,) = Node(*known).look(look)
        rank = min((ranks[problem.state] for problem in problems), default=len(ranks))
        assert rank <= worst
        worst = rank


@given(REPORTS, SIGNALS, st.sampled_from([None, LOST, UNREADABLE]))
def test_each_state_of_a_scope_is_there_once_and_a_look_changes_nothing(
    reports: list[tuple[int, int, MigSite | None]], signals: Signals, silent: Any
) -> None:
    node = Node(*(fault(*report) for report in reports))
    look = seen(signals, *([silent] if silent else ()))
    (problems,) = node.look(look)
    identities = [(problem.state, problem.site) for problem in problems]

    assert len(identities) == len(set(identities))
    assert len(taints(problems, "gpu.carina.dev", DEFAULT_EVICT)) <= 8
    assert node.look(look) == [problems]


@given(st.lists(st.tuples(XIDS, st.integers(0, 90)), max_size=300))
def test_what_is_remembered_of_a_gpu_is_bounded_and_the_worst_stays(
    reports: list[tuple[int, int]],
) -> None:
    card = gpu(0, architecture="Hopper")
    known: Faults = {}
    for xid, seconds in [*reports, (95, 0), *((500 + n, 0) for n in range(2 * MOST))]:
        known = remembered(known, fault(xid, seconds), RULES, card)

    assert len(known) == MOST
    assert (95, None) in known


@given(REPORTS, SIGNALS)
def test_a_silent_gpu_is_no_better_than_before(
    reports: list[tuple[int, int, MigSite | None]], signals: Signals
) -> None:
    node = Node(*(fault(*report) for report in reports))
    (before,) = node.look(seen(signals))
    (silent,) = node.look(seen(Signals(), LOST, binding=NEXT_BOOT))

    assert {p.state for p in silent if not is_unanswered(p)} >= {p.state for p in before}


def test_faults_of_gpus_that_are_gone_are_remembered_of_the_last_64() -> None:
    fault = Fault(95, None, NOTICED, NOTICED, 1, "")
    gone = {f"GPU-{number}": {fault.key: fault} for number in range(100)}

    _, memory = diagnosed(DriverReady(()), HealthMemory(gone), XidRules(), {}, NOTICED)

    assert list(memory.faults) == [f"GPU-{number}" for number in range(36, 100)]
