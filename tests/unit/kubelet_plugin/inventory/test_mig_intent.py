"""What is recorded of a GPU's partitions, as text."""

import json
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubelet_plugin.inventory.mig import MigPlacement, MigSite
from kubelet_plugin.inventory.mig_intent import (
    MigIntentError,
    MigIntents,
    parse_intents,
    render_intents,
)

BOOT = "boot-1"
SITE = MigSite(19, MigPlacement(6, 1))
INTENTS = MigIntents("gpu-0", "0000:1b:00.0", mode=True, instances={"gpu-0-mig-1g10gb-19-6": SITE})

sites = st.builds(
    MigSite, st.integers(0, 99), st.builds(MigPlacement, st.integers(0, 15), st.integers(1, 16))
)
recorded = st.builds(
    MigIntents,
    st.text(),
    st.text(),
    st.booleans(),
    st.dictionaries(st.text(), sites, max_size=4),
    st.booleans(),
)


def with_field(**fields: Any) -> bytes:
    return json.dumps(json.loads(render_intents(INTENTS, BOOT)) | fields).encode()


def without_field(name: str) -> bytes:
    content = json.loads(render_intents(INTENTS, BOOT))
    return json.dumps({field: content[field] for field in content if field != name}).encode()


def with_instance(**fields: Any) -> bytes:
    return with_field(instances=[{"device": "d", "profile": 19, "start": 0, "size": 1} | fields])


@given(recorded)
def test_intents_are_read_as_they_were_written(intents: MigIntents) -> None:
    assert parse_intents(render_intents(intents, BOOT), BOOT) == intents


@given(recorded)
def test_equal_intents_are_written_alike(intents: MigIntents) -> None:
    turned = dict(reversed(list(intents.instances.items())))
    other = replace(intents, instances=turned)

    assert render_intents(other, BOOT) == render_intents(intents, BOOT)


def test_intents_of_another_boot_name_nothing() -> None:
    assert parse_intents(render_intents(INTENTS, "boot-0"), BOOT) is None


def test_adding_and_removing_an_instance_leaves_the_rest() -> None:
    other = MigSite(19, MigPlacement(0, 1))

    assert INTENTS.with_instance("other", other).without_instance("other") == INTENTS
    assert not INTENTS.without_instance("gpu-0-mig-1g10gb-19-6").instances
    assert INTENTS.without_instance("unknown") == INTENTS


def test_a_site_has_one_instance_under_its_last_name() -> None:
    renamed = INTENTS.with_instance("gpu-3-mig-1g10gb-19-6", SITE)

    assert dict(renamed.instances) == {"gpu-3-mig-1g10gb-19-6": SITE}


@pytest.mark.parametrize(
    ("mode", "instances", "names_something"),
    [(False, {}, False), (True, {}, True), (False, {"device": SITE}, True)],
)
def test_intents_without_mode_and_instances_name_nothing(
    mode: bool, instances: dict[str, MigSite], names_something: bool
) -> None:
    assert bool(MigIntents("gpu-0", "0000:1b:00.0", mode, instances)) == names_something


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is damaged"),
        (b"{", "is damaged"),
        (b"\0" * 100, "is damaged"),
        (b"\xff", "is damaged"),
        (b"null", "is damaged"),
        (b"[]", "is damaged"),
        (b"{}", "has no field 'version'"),
        (without_field("timeSlice"), "has no field 'timeSlice'"),
        (b"[" * 100_000, "is damaged"),
        (with_field(version=2), "has version 2; only version 1 is supported"),
        (with_field(version=None), "has version None"),
        (with_field(instances=None), "is damaged"),
        (with_field(instances=[{}]), "has no field 'device'"),
        (with_field(instances=["gpu-0"]), "is damaged"),
        (with_instance(profile="x"), "damaged"),
        (
            with_instance(profile=None),
            "damaged",
        ),
        (
            with_instance(profile=1e400),
            "is damaged",
        ),
    ],
)
def test_content_that_cannot_be_read_is_refused_with_the_reason(
    content: bytes, reason: str
) -> None:
    with pytest.raises(MigIntentError, match=reason):
        parse_intents(content, BOOT)


@pytest.mark.parametrize("length", range(len(render_intents(INTENTS, BOOT)) - 1))
def test_content_that_is_cut_off_anywhere_is_refused(length: int) -> None:
    with pytest.raises(MigIntentError):
        parse_intents(render_intents(INTENTS, BOOT)[:length], BOOT)


values = st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists)


@given(st.binary() | values.map(lambda value: json.dumps(value).encode()))
def test_any_other_content_is_refused(content: bytes) -> None:
    with pytest.raises(MigIntentError):
        parse_intents(content, BOOT)


@given(
    st.sampled_from(["version", "bootID", "gpu", "pciBusID", "mode", "timeSlice", "instances"]),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["device", "profile", "start", "size"]), inner, max_size=4
            )
        ),
    ),
)
def test_a_field_with_any_value_is_read_or_refused(field: str, value: object) -> None:
    with suppress(MigIntentError):
        intents = parse_intents(with_field(**{field: value}), BOOT)
        assert intents is None or parse_intents(render_intents(intents, BOOT), BOOT) == intents
