"""The checkpoint: what is written is read, and what cannot be read is not guessed at."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carina_dra.config.device import Enforcement, GpuConfig, MigDeviceConfig, ShareConfig
from carina_dra.quantity import Quantity
from kubelet_plugin.claims.checkpoint import (
    Checkpoint,
    CheckpointError,
    CheckpointFormError,
    ClaimRecorded,
    ClaimRemoved,
    change,
    check_form,
    parse_checkpoint,
    render_change,
    render_checkpoint,
)
from kubelet_plugin.claims.claim import AllocatedDevice, NodeClaim
from tests.samples.claims import UID, allocated, allocated_share, claim

EMPTY = render_checkpoint(Checkpoint("boot", {}))
DEVICE = json.loads(render_change(ClaimRecorded(claim())))["claim"]["devices"][0]
SHARE_CONFIG = {"apiVersion": "resource.carina.dev/v1alpha1", "kind": "ShareConfig"}


def recorded(device: object) -> bytes:
    """A checkpoint whose second line records a claim with this device."""
    entry = {"uid": UID, "namespace": "default", "name": "train", "devices": [device]}
    return EMPTY + json.dumps({"claim": entry}).encode() + b"\n"


names = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)
share_configs = st.builds(
    ShareConfig,
    enforcement=st.builds(
        Enforcement,
        memory=st.sampled_from([(), ("mps",), ("kernel", "watchdog")]),
        cores=st.sampled_from([(), ("time-slice",), ("mps", "time-slice")]),
    ),
)
devices_with_config = st.one_of(
    st.tuples(names, st.just(GpuConfig())),
    st.tuples(st.just("gpu-0-share"), share_configs),
    st.tuples(st.just("gpu-0-mig-1g10gb-19-6"), st.just(MigDeviceConfig())),
)
claim_devices = st.builds(
    lambda request, pool, device, *others: AllocatedDevice(request, pool, *device, *others),
    names,
    names,
    devices_with_config,
    st.booleans(),
    st.none() | names,
    st.dictionaries(names, st.integers(0, 2**40).map(Quantity.of), max_size=2),
)
prepared_claims = st.builds(
    NodeClaim,
    names,
    names,
    names,
    st.lists(claim_devices, max_size=4).map(tuple),
    st.none() | names,
    st.dictionaries(names, names, max_size=2),
)
checkpoints = st.builds(
    Checkpoint,
    names,
    st.lists(prepared_claims, max_size=5).map(lambda all_: {each.uid: each for each in all_}),
)


@given(checkpoints)
def test_what_is_written_is_read(checkpoint: Checkpoint) -> None:
    assert parse_checkpoint(render_checkpoint(checkpoint)) == checkpoint


@given(checkpoints, prepared_claims)
def test_striking_a_claim_out_undoes_adding_it(checkpoint: Checkpoint, added: NodeClaim) -> None:
    without = checkpoint.without(added.uid)
    assert without.with_claim(added).without(added.uid) == without


def test_the_format_is_what_other_versions_on_the_node_read_and_write() -> None:
    shared = AllocatedDevice(
        request="gpu",
        pool="node-1",
        device="gpu-0",
        config=GpuConfig(),
        admin_access=True,
        share_id="s-1",
        consumed_capacity={"memory": Quantity.parse("4Gi")},
    )
    checkpoint = Checkpoint("boot", {"u": NodeClaim("u", "default", "train", (shared,))})
    written = (
        b'{"uid":"u","namespace":"default","name":"train","devices":[{"request":"gpu",'
        b'"pool":"node-1","device":"gpu-0","config":{"apiVersion":"resource.carina.dev/v1alpha1",'
        b'"kind":"GpuConfig"},"adminAccess":true,"shareID":"s-1","consumedCapacity":'
        b'{"memory":"4Gi"}}]}'
    )
    content = b'{"version":1,"bootID":"boot","claims":[' + written + b"]}\n"
    assert render_checkpoint(checkpoint) == content
    assert parse_checkpoint(content) == checkpoint
    assert render_change(ClaimRecorded(checkpoint.claims["u"])) == b'{"claim":' + written + b"}\n"
    assert render_change(ClaimRemoved("u")) == b'{"gone":"u"}\n'


def test_the_names_that_pods_know_are_recorded_where_other_versions_ignore_them() -> None:
    named = replace(claim(), pod_claim="gpu", subrequests={"gpu": "small"})
    plain, written = (
        json.loads(render_change(ClaimRecorded(each)))["claim"] for each in (claim(), named)
    )
    assert written == {**plain, "podClaimName": "gpu", "subrequests": {"gpu": "small"}}


def test_the_pods_of_a_call_are_not_recorded() -> None:
    used = replace(claim(), pods=("5f0c",))
    recorded = Checkpoint("boot", {}).with_claim(used).claims[used.uid]
    assert recorded == used
    assert recorded.pods is None


def test_a_configuration_of_another_kind_is_recorded_where_other_versions_ignore_it() -> None:
    config = ShareConfig(enforcement=Enforcement(memory=("kernel",), cores=("mps", "time-slice")))
    share = allocated_share("gpu-0-share", share_id="s-1", config=config)
    (recorded_device,) = json.loads(render_change(ClaimRecorded(claim(share))))["claim"]["devices"]
    api_version = "resource.carina.dev/v1alpha1"
    assert recorded_device["config"] == {"apiVersion": api_version, "kind": "GpuConfig"}
    assert recorded_device["deviceConfig"] == {
        "apiVersion": api_version,
        "kind": "ShareConfig",
        "enforcement": {"memory": "kernel", "cores": ["mps", "time-slice"]},
    }


def test_a_demand_that_an_earlier_version_recorded_as_a_word_is_read() -> None:
    earlier = {**SHARE_CONFIG, "enforcement": {"memory": "none", "cores": "time-slice"}}
    device = {**DEVICE, "device": "gpu-0-share", "deviceConfig": earlier}
    (found,) = parse_checkpoint(recorded(device)).claims[UID].devices
    assert found.config == ShareConfig(enforcement=Enforcement(cores=("time-slice",)))


def test_a_configuration_of_a_newer_version_is_ignored() -> None:
    later = {"apiVersion": "resource.carina.dev/v1alpha1", "kind": "LaterConfig", "setting": 1}
    checkpoint = parse_checkpoint(recorded({**DEVICE, "deviceConfig": later}))
    assert checkpoint.claims == {UID: claim()}


def test_a_damaged_configuration_of_a_known_kind_is_not_ignored() -> None:
    damaged = {**SHARE_CONFIG, "enforcement": {"memory": "hard"}}
    with pytest.raises(CheckpointError, match=r"deviceConfig: .*enforcement\.memory"):
        parse_checkpoint(recorded({**DEVICE, "deviceConfig": damaged}))


def test_fields_of_a_newer_plugin_are_passed_over() -> None:
    content = json.loads(render_checkpoint(Checkpoint("boot", {UID: claim(allocated("gpu-0"))})))
    content["later"] = 1
    content["claims"][0]["later"] = 1
    content["claims"][0]["devices"][0]["later"] = 1
    content["claims"][0]["devices"][0]["config"]["later"] = 1
    assert parse_checkpoint(json.dumps(content).encode()).claims[UID] == claim(allocated("gpu-0"))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "line 1 is damaged"),
        (b"[]", "line 1 is damaged"),
        (b'{"version": 1, "bootID": "b"}', "line 1 has no field 'claims'"),
        (b'{"version": 1, "bootID": "b", "claims": [{"uid": 5}]}', "line 1 has 5 in field uid"),
        (EMPTY + b"\0\0\n", "line 2 is damaged"),
        (EMPTY + b"{}\n", "line 2 has no field 'claim'"),
        (EMPTY + b'{"gone": "u"}\n', "line 2 removes claim u, which is not recorded"),
        (b"[" * 100_000 + b"\n", "line 1 is damaged"),
        (recorded("gpu-0"), "line 2 is damaged"),
        (recorded({**DEVICE, "config": []}), "line 2 is damaged"),
        (recorded({**DEVICE, "consumedCapacity": [1]}), "line 2 is damaged"),
        (
            EMPTY + b"{\n" + render_change(ClaimRecorded(claim(allocated("gpu-0")))),
            "line 2 is damaged",
        ),
    ],
)
def test_what_is_wrong_is_said(content: bytes, problem: str) -> None:
    with pytest.raises(CheckpointError, match=problem):
        parse_checkpoint(content)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b'{"version": 2}', "line 1 has 2 in field version, and .* reads only 1; run the version"),
        (b'{"version": 0, "bootID": "b", "claims": []}\n', "line 1 has 0 in field version"),
        (b'{"version": "v1"}', "line 1 has 'v1' in field version"),
        (b'{"claims": []}', "line 1 has no field version"),
        (b'{"data": {}, "checksum": 1}\n' + EMPTY, "line 1 has no field version"),
    ],
)
def test_another_form_is_no_damage(content: bytes, problem: str) -> None:
    with pytest.raises(CheckpointFormError, match=problem):
        parse_checkpoint(content)
    with pytest.raises(CheckpointFormError, match=problem):
        check_form(content.partition(b"\n")[0])


@pytest.mark.parametrize("line", [b"", b"{", b"[]", b"5", b"\0", b"\xff", b"[" * 100_000, EMPTY])
def test_damage_is_no_other_form(line: bytes) -> None:
    check_form(line)


@pytest.mark.parametrize("damage", [1, "x", None, [1]])
@pytest.mark.parametrize(
    "path",
    [
        ("claims",),
        ("claims", 0),
        ("claims", 0, "devices", 0),
        ("claims", 0, "devices", 0, "config"),
        ("claims", 0, "devices", 0, "consumedCapacity"),
    ],
    ids=lambda path: str(path[-1]),
)
def test_a_value_of_another_type_is_damage(path: tuple[str | int, ...], damage: object) -> None:
    content = json.loads(render_checkpoint(Checkpoint("boot", {UID: claim(allocated("gpu-0"))})))
    parent = content
    for step in path[:-1]:
        parent = parent[step]
    parent[path[-1]] = damage
    with pytest.raises(CheckpointError, match="line 1"):
        parse_checkpoint(json.dumps(content).encode() + b"\n")


@given(checkpoints, st.lists(prepared_claims, max_size=5))
def test_changes_lead_from_one_state_to_the_next(
    before: Checkpoint, claims: list[NodeClaim]
) -> None:
    content, state = render_checkpoint(before), before
    for each in claims:
        for after in (state.with_claim(each), state.with_claim(each).without(each.uid)):
            step = change(state, after)
            content += b"" if step is None else render_change(step)
            assert (step is None) == (state == after)
            state = after
    assert parse_checkpoint(content) == state


def test_a_change_that_was_cut_off_does_not_count() -> None:
    before = Checkpoint("boot", {UID: claim(allocated("gpu-0"))})
    line = render_change(ClaimRemoved(UID))
    for length in range(len(line)):
        assert parse_checkpoint(render_checkpoint(before) + line[:length]) == before
    assert parse_checkpoint(render_checkpoint(before) + line) == before.without(UID)


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(Checkpoint("another boot", {}), id="another boot"),
        pytest.param(Checkpoint("boot", {}), id="nothing"),
        pytest.param(
            Checkpoint("boot", {n: replace(claim(allocated("gpu-0")), uid=n) for n in "ab"}),
            id="two claims",
        ),
    ],
)
def test_more_or_less_than_one_claim_is_no_change(after: Checkpoint) -> None:
    assert change(Checkpoint("boot", {}), after) is None
