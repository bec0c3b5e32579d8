"""The kubelet's record: what the kubelet writes is read, and nothing else is believed.

The files in `data/kubelet_record` are written by the kubelet's own code, called by `main.go` there.
"""

import json
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubelet_plugin.claims.claim import ClaimReference
from kubelet_plugin.claims.kubelet_record import KubeletRecord, KubeletRecordError, parse_record

_DATA = Path(__file__).parents[1] / "data" / "kubelet_record"
_UID = "6f9c3a51-1f53-4c3e-9f2e-0a6f0d9b1c0"
_EXPECTED = {
    "first-start": [],
    "none-left": [],
    "one": [ClaimReference(f"{_UID}1", "tenant-a", "train-gpu-x7k2p")],
    "several": [
        ClaimReference(f"{_UID}2", "tenant-a", "shared"),
        ClaimReference(f"{_UID}3", "tenant-b", "recorded-but-not-prepared"),
        ClaimReference(f"{_UID}4", "tenant-b", "without-pods-and-drivers"),
        ClaimReference(f"{_UID}5", "tenant-c", "of-another-driver"),
    ],
}
_SEVERAL = (_DATA / "v1.37.0" / "several").read_bytes()
_ENTRY = {"ClaimUID": "u", "Namespace": "n", "ClaimName": "c"}


def _content(data: object) -> bytes:
    """A record with that content, whose checksum is right."""
    text = data if isinstance(data, str) else json.dumps(data)
    return json.dumps({"Data": text, "Checksum": zlib.crc32(text.encode())}).encode()


def _data(**changed: object) -> dict[str, Any]:
    return {
        "kind": "DRACheckpoint",
        "apiVersion": "checkpoint.dra.kubelet.k8s.io/v1",
        "ClaimInfoStateList": [_ENTRY],
        **changed,
    }


def _assert_not_misread(content: bytes) -> None:
    try:
        record = parse_record(content)
    except KubeletRecordError:
        return
    assert record == parse_record(_SEVERAL)


@pytest.mark.parametrize("name", _EXPECTED)
@pytest.mark.parametrize("release", ["v1.34.0", "v1.35.0", "v1.36.3", "v1.37.0"])
def test_claims_that_the_kubelet_wrote_are_read(release: str, name: str) -> None:
    record = parse_record((_DATA / release / name).read_bytes())
    assert record == KubeletRecord({claim.uid: claim for claim in _EXPECTED[name]})


def test_claim_is_held_whatever_its_pods_and_drivers() -> None:
    record = parse_record(_SEVERAL)
    assert all(record.holds(claim.uid) for claim in _EXPECTED["several"])


def test_claim_of_the_same_name_and_another_uid_is_not_held() -> None:
    assert not parse_record(_content(_data())).holds("another")


def test_fields_of_a_claim_that_are_not_known_are_passed_over() -> None:
    later = _data(ClaimInfoStateList=[{**_ENTRY, "later": 1}])
    assert parse_record(_content(later)).holds("u")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "the record is not JSON"),
        (b"\xff", "the record is not JSON"),
        (b"[" * 100_000, "the record is not JSON"),
        (b"[]", "the record must be an object"),
        (b"{}", "the record must have the fields Checksum, Data, but has none"),
        # An older format.
        (
            b'{"version":"v1","entries":[],"checksum":1}',
            "but has checksum, entries, version",
        ),
        (
            b'{"Data":"{}","Checksum":1,"Later":1}',
            "but has Checksum, Data, Later",
        ),
        (b'{"Data":{},"Checksum":1}', "Data must be a string"),
        (b'{"Data":"{}","Checksum":true}', "Checksum an integer"),
        (b'{"Data":"{}","Checksum":1}', "of Data is 2745614147, but Checksum is 1"),
        (b'{"Data":"\\ud800","Checksum":1}', "Data is not valid Unicode"),
        (_content("{"), "Data is not JSON"),
        (_content([]), "Data must be an object"),
        (_content({"kind": "DRACheckpoint"}), "Data must have the fields .*, but has kind"),
        (_content(_data(ClaimsElsewhere=[])), "but has ClaimInfoStateList, ClaimsElsewhere, apiV"),
        (_content(_data(kind="Other")), "is of kind 'Other'"),
        (
            _content(_data(apiVersion="checkpoint.dra.kubelet.k8s.io/v2")),
            "k8s.io/v2'; only DRACheckpoint of",
        ),
        (_content(_data(ClaimInfoStateList={})), "ClaimInfoStateList must be a list"),
        (_content(_data(ClaimInfoStateList=[5])), r"ClaimInfoStateList\[0\] must be an object"),
        *(
            (
                _content(_data(ClaimInfoStateList=[_ENTRY, {**_ENTRY, field: value}])),
                rf"ClaimInfoStateList\[1\].{field} must be a string",
            )
            for field in _ENTRY
            for value in (None, "", 5)
        ),
    ],
)
def test_what_is_wrong_is_said(content: bytes, problem: str) -> None:
    with pytest.raises(KubeletRecordError, match=problem):
        parse_record(content)


def test_flipped_bit_is_never_misread() -> None:
    for position in range(len(_SEVERAL)):
        for bit in range(8):
            damaged = bytearray(_SEVERAL)
            damaged[position] ^= 1 << bit
            _assert_not_misread(bytes(damaged))


def test_cut_off_record_is_an_error() -> None:
    for length in range(len(_SEVERAL)):
        with pytest.raises(KubeletRecordError):
            parse_record(_SEVERAL[:length])


@given(st.data())
def test_damage_is_never_misread(data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(_SEVERAL)))
    end = data.draw(st.integers(begin, len(_SEVERAL)))
    pieces = st.binary(max_size=20) | st.sampled_from([_SEVERAL[i:] for i in range(0, 1000, 7)])
    _assert_not_misread(_SEVERAL[:begin] + data.draw(pieces) + _SEVERAL[end:])


@given(st.binary() | st.text().map(str.encode))
def test_anything_else_is_an_error(content: bytes) -> None:
    with pytest.raises(KubeletRecordError):
        parse_record(content)


_json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(_json_values)
def test_any_list_of_claims_is_read_or_an_error(claims: object) -> None:
    try:
        record = parse_record(_content(_data(ClaimInfoStateList=claims)))
    except KubeletRecordError:
        return
    assert not record.claims
    assert not claims
