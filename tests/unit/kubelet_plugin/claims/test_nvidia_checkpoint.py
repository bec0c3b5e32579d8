"""The checkpoint of NVIDIA's DRA driver, as far as it is read."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubelet_plugin.claims.nvidia_checkpoint import (
    NvidiaCheckpoint,
    NvidiaCheckpointError,
    parse_nvidia_checkpoint,
)
from kubelet_plugin.devices.conflict import DeviceHold
from kubelet_plugin.devices.name import PartitionName, WholeGpuName
from tests.samples.nvidia_checkpoint import STARTED, checkpoint, entry, result

DRIVER = "gpu.nvidia.com"
GPU, PARTITION = result("gpu-0", DRIVER), result("gpu-1-mig-2g47gb-14-0", DRIVER)
ONE = {"uid-1": entry(GPU)}
READ = NvidiaCheckpoint({"uid-1": (DeviceHold(WholeGpuName(0)),)}, frozenset())
ENDED = NvidiaCheckpoint({}, frozenset({"uid-1"}))


def parse(content: bytes, boot_id: str | None = "boot-1") -> NvidiaCheckpoint:
    return parse_nvidia_checkpoint(content, driver=DRIVER, boot_id=boot_id)


@pytest.mark.parametrize("versions", [["v1"], ["v2"], ["v1", "v2"]], ids="+".join)
def test_claims_are_read_with_their_devices(versions: list[str]) -> None:
    claims = {**ONE, "uid-2": entry(GPU, PARTITION)}

    assert parse(checkpoint(claims, versions=versions)).prepared == {
        "uid-1": (DeviceHold(WholeGpuName(0)),),
        "uid-2": (DeviceHold(WholeGpuName(0)), DeviceHold(PartitionName(1, "2g47gb", 14, 0))),
    }


@pytest.mark.parametrize(
    ("extra", "holds"),
    [
        ({"adminAccess": True}, ()),
        ({"adminAccess": False}, (DeviceHold(WholeGpuName(0)),)),
        ({"shareID": "a-share"}, (DeviceHold(WholeGpuName(0), "a-share"),)),
        ({"driver": "compute-domain.nvidia.com"}, ()),
    ],
)
def test_only_devices_of_the_driver_that_a_claim_holds_count(
    extra: dict[str, Any], holds: tuple[DeviceHold, ...]
) -> None:
    assert parse(checkpoint({"uid-1": entry({**GPU, **extra})})).prepared == {"uid-1": holds}


@pytest.mark.parametrize(
    ("state", "read"),
    [
        (STARTED, ENDED),
        ("PrepareAborted", ENDED),
        ("UnprepareStarted", READ),  # of a newer version: its containers may still run
        ("", READ),
        (None, READ),
    ],
)
def test_only_a_claim_whose_prepare_did_not_end_is_known_to_be_unprepared(
    state: str | None, read: NvidiaCheckpoint
) -> None:
    assert parse(checkpoint({"uid-1": entry(GPU, state=state)})) == read


@pytest.mark.parametrize(
    ("written", "current", "read"),
    [
        ("boot-1", "boot-1", READ),
        ("boot-0", "boot-1", ENDED),
        (None, "boot-1", READ),
        ("boot-0", None, READ),
    ],
)
def test_claims_of_an_earlier_boot_are_unprepared(
    written: str | None, current: str | None, read: NvidiaCheckpoint
) -> None:
    assert parse(checkpoint(ONE, boot_id=written), current) == read


def test_a_checkpoint_without_claims_is_empty() -> None:
    empty = NvidiaCheckpoint({}, frozenset())
    assert parse(b'{"checksum": 1, "v2": {"preparedClaims": null}}') == empty


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "it is damaged"),
        (b"[]", "it is damaged"),
        (b"\xff\xfe", "it is damaged"),
        (b"[" * 100_000, "it is damaged"),
        (b'{"checksum": 1}', "it has none of the versions v2, v1"),
        (b'{"v3": {"preparedClaims": {}}}', "it has none of the versions v2, v1"),
        (b'{"v2": []}', "it has none of the versions v2, v1"),
        (b'{"v2": {"preparedClaims": ["a"]}}', "it is damaged"),
        (b'{"v2": {"preparedClaims": {"a": null}}}', "it is damaged"),
        (b'{"v2": {"claims": {}}}', "it has no field 'preparedClaims'"),
        (json.dumps({"v1": {"preparedClaims": {"a": {"status": {}}}}}).encode(), "'allocation'"),
        (checkpoint({"a": entry(result(3, DRIVER))}), "it is damaged"),
        (checkpoint({"a": entry(result(f"gpu-{'9' * 5000}", DRIVER))}), "it is damaged"),
    ],
)
def test_what_cannot_be_read_is_said(content: bytes, problem: str) -> None:
    with pytest.raises(NvidiaCheckpointError, match=problem):
        parse(content)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["status", "allocation", "devices", "results", "device", "driver", "uid-1"]
            ),
            inner,
        )
        | st.fixed_dictionaries({"device": inner, "driver": st.just(DRIVER), "shareID": inner})
    ),
    max_leaves=10,
)


@given(_JSON, st.sampled_from(["boot-1", "boot-0", None, 7, []]))
def test_whatever_is_written_is_read_or_an_error(claims: object, boot_id: object) -> None:
    content = {"v2": {"preparedClaims": claims, "nodeBootID": boot_id}}
    try:
        read = parse(json.dumps(content).encode())
    except NvidiaCheckpointError:
        return
    assert claims is None or isinstance(claims, dict)
    assert read.prepared.keys() | read.unprepared == (claims or {}).keys()
