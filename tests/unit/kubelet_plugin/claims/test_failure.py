"""Which failures may pass by themselves, and so are tried again while the kubelet waits."""

import errno
import re
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest

from carina_dra.config.enforcement import LackingLevel
from carina_dra.kube.event import cut_note
from kubelet_plugin.claims.claim import ClaimReference
from kubelet_plugin.claims.failure import (
    AllocationRefused,
    ApiUnavailable,
    CallerGone,
    CheckpointUnusable,
    ClaimFailure,
    ClaimGone,
    DeviceHeld,
    DeviceMissing,
    DeviceUnhealthy,
    DriverUnknown,
    EnforcementMissing,
    GpusNotRead,
    HeldByNvidia,
    LockBusy,
    LockUnavailable,
    MpsConfigsDiffer,
    MpsMissing,
    MpsOfSeveralGpus,
    NodeReleased,
    NodeResourceFailed,
    PodUnclear,
    PreparedByNvidia,
    ShareHeld,
    TimeSlicingMissing,
    UnexpectedError,
)
from kubelet_plugin.claims.resource_failure import (
    DiskFull,
    FileUnusable,
    ResourceFailure,
    file_failure,
)
from tests.samples.claims import claim
from tests.samples.gpus import LOST, UNREADABLE
from tests.samples.resource_failures import BUSY, FINAL, RETRIABLE

TRAIN = ClaimReference("uid", "default", "train")
CASES: list[tuple[ClaimFailure, bool]] = [
    (ClaimGone(TRAIN, "was deleted"), False),
    (AllocationRefused(TRAIN, "an unknown field"), False),
    (ApiUnavailable(TRAIN, "no route", retriable=True), True),
    (ApiUnavailable(TRAIN, "forbidden", retriable=False), False),
    (DeviceHeld(claim(), "gpu-0", claim(uid="other"), "gpu-0"), True),
    (PreparedByNvidia(TRAIN), False),
    (HeldByNvidia(claim(), "gpu-0", "other", "gpu-0"), True),
    (DeviceMissing(claim(), "gpu-0", ()), True),
    (DeviceUnhealthy(claim(), "gpu-0", "GPU-1", UNREADABLE), True),
    (DeviceUnhealthy(claim(), "gpu-0", "GPU-1", LOST), False),
    (EnforcementMissing(claim(), "gpu-0-share", (LackingLevel("memory", "mps", "a"),)), False),
    (MpsOfSeveralGpus(claim(), ("gpu-0", "gpu-1")), False),
    (MpsConfigsDiffer(claim(), ("a", "b")), False),
    (MpsMissing(claim(), "gpu-0", "Tesla P100", "550.54"), False),
    (PodUnclear(claim(), "gpu-0-share", 2), False),
    (ShareHeld(claim(), "gpu-0-share", "cores", "110 %", "100 %"), True),
    (TimeSlicingMissing(claim(), "gpu-0", "Short", "Tesla P4"), False),
    (DriverUnknown(claim()), True),
    (GpusNotRead(TRAIN, 61.0), True),
    (NodeReleased(TRAIN), True),
    *((NodeResourceFailed(TRAIN, cause), True) for cause in RETRIABLE),
    *((NodeResourceFailed(TRAIN, cause), False) for cause in FINAL),
    (CheckpointUnusable("disk full"), True),
    (LockUnavailable("held"), True),
    (LockBusy("held"), True),
    (CallerGone(TRAIN), False),
    (UnexpectedError(TRAIN, "KeyError()"), False),
]


@pytest.mark.parametrize(("failure", "retriable"), CASES, ids=lambda value: type(value).__name__)
def test_what_may_pass_by_itself(failure: ClaimFailure, retriable: bool) -> None:
    assert failure.retriable is retriable


def test_every_failure_is_in_the_table_under_a_reason_of_its_own() -> None:
    assert {type(failure) for failure, _ in CASES} == set(get_args(ClaimFailure))
    own = [_cause(failure) for failure, _ in CASES]
    assert {type(cause) for cause in own} >= set(get_args(ResourceFailure))
    assert all(
        failure.reason == type(cause).__name__
        for (failure, _), cause in zip(CASES, own, strict=True)
    )


def test_every_reason_is_documented() -> None:
    page = (Path(__file__).parents[4] / "docs/claim-failures.md").read_text()
    documented = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    assert documented == sorted(documented)
    assert set(documented) == {failure.reason for failure, _ in CASES}


def test_a_cause_names_the_claim_if_it_is_known() -> None:
    text = (
        "MIG mode of GPU-1 cannot be switched on: nvmlDeviceSetMigMode returned NVML_ERROR_IN_USE; "
        "a process on the node uses the GPU"
    )
    assert str(NodeResourceFailed(None, BUSY)).startswith(text)
    assert str(NodeResourceFailed(TRAIN, BUSY)).startswith(
        f"ResourceClaim default/train (UID uid): {text}"
    )


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, DiskFull),
        (errno.EDQUOT, DiskFull),
        (errno.EIO, FileUnusable),
        (None, FileUnusable),
    ],
)
def test_a_full_disk_is_told_from_another_error(
    number: int | None, kind: type[ResourceFailure]
) -> None:
    error = OSError("no number") if number is None else OSError(number, "said")
    failure = file_failure("a file", "written", error, "do this")
    assert type(failure) is kind
    assert str(failure) == f"a file cannot be written: {error}; do this"


def _cause(failure: ClaimFailure) -> ClaimFailure | ResourceFailure:
    return failure.cause if isinstance(failure, NodeResourceFailed) else failure


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        ("gpu-7-mig-1g10gb-19-6", "(devices of gpu-7: gpu-7-mig-1g10gb-15-0, "),
        ("gpu-7-mig-1g10gb-19-6", " and 15 more)"),
        ("gpu-16", "(GPUs: gpu-0, gpu-1, "),
    ],
)
def test_a_missing_device_of_a_large_node_is_named_with_the_remedy(
    missing: str, words: str
) -> None:
    names = (f"gpu-{minor}-mig-1g10gb-15-{start}" for minor in range(16) for start in range(25))
    failure = str(DeviceMissing(claim(), missing, tuple(names)))

    assert words in failure
    assert cut_note(f"{failure} (the plugin retries)").endswith("again (the plugin retries)")


def test_a_holder_in_another_namespace_is_named_by_its_uid_alone() -> None:
    """The Event is read by the tenant of the claim, who need not know names of other tenants."""
    holder = replace(claim(uid="other"), namespace="secret-team", name="secret-model")
    text = str(DeviceHeld(claim(), "gpu-0", holder, "gpu-0"))
    assert "a ResourceClaim of another namespace (UID other)" in text
    assert "secret" not in text


def test_missing_enforcement_names_claim_field_and_device_and_the_remedy() -> None:
    failure = EnforcementMissing(
        claim(),
        "gpu-0-share",
        (
            LackingLevel("memory", "watchdog", "memoryEnforcementWatchdog"),
            LackingLevel("cores", "mps", "coreEnforcementMPS"),
        ),
    )
    assert str(failure) == (
        "ResourceClaim default/train or its DeviceClass demands enforcement by watchdog for "
        "memory and mps for cores in a ShareConfig, which device gpu-0-share does not have; select "
        "devices by memoryEnforcementWatchdog: true and coreEnforcementMPS: true, or do not demand "
        "it"
    )
