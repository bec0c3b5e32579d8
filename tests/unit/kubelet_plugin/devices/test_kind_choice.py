"""In which ways each GPU is offered."""

import re
from typing import Any

import pytest

from kubelet_plugin.devices.kind import DeviceKind
from kubelet_plugin.devices.kind_choice import (
    ByMinor,
    ByProduct,
    ByUuid,
    KindChoice,
    KindRule,
    parse_kind_rules,
)
from tests.samples.gpus import observed

GPU, MIG, SHARE, MONITOR = (frozenset({kind}) for kind in DeviceKind)
UUID = "GPU-01234567-89ab-cdef-0123-456789abcdef"


def test_the_first_rule_that_names_a_gpu_counts() -> None:
    gpus = [observed(minor).gpu for minor in range(4)]
    choice = KindChoice(
        GPU,
        (
            KindRule(ByMinor(1), MIG),
            KindRule(ByUuid(gpus[1].uuid), SHARE),
            KindRule(ByUuid(gpus[2].uuid), SHARE),
        ),
    )
    assert [choice.kinds(gpu) for gpu in gpus] == [GPU, MIG, SHARE, GPU]


@pytest.mark.parametrize(
    ("product", "kinds"),
    [("NVIDIA A100-SXM4-80GB", SHARE), ("NVIDIA H100 80GB HBM3", GPU), (None, GPU)],
)
def test_a_product_is_named_by_a_pattern(product: str | None, kinds: frozenset[DeviceKind]) -> None:
    choice = KindChoice(GPU, (KindRule(ByProduct("NVIDIA A100*"), SHARE),))
    assert choice.kinds(observed(0, product_name=product).gpu) == kinds


def test_rules_are_read_in_their_order() -> None:
    written = [
        {"minor": 0, "kinds": ["gpu", "monitor"]},
        {"uuid": UUID, "kinds": ["share"]},
        {"product": "NVIDIA A100*", "kinds": []},
    ]
    assert parse_kind_rules(written) == (
        KindRule(ByMinor(0), GPU | MONITOR),
        KindRule(ByUuid(UUID), SHARE),
        KindRule(ByProduct("NVIDIA A100*"), frozenset()),
    )


@pytest.mark.parametrize(
    ("written", "problem"),
    [
        ({"0": ["gpu"]}, "must be a list"),
        (["gpu"], "entry 1 must have kinds and one of minor, uuid, product; it has neither"),
        ([{"minor": 0}], "entry 1 must have kinds and one of minor, uuid, product; it has minor"),
        ([{"kinds": ["gpu"]}], "it has kinds"),
        ([{"minor": 0, "uuid": UUID, "kinds": []}], "it has minor, uuid, kinds"),
        ([{"index": 0, "kinds": []}], "has the unknown key index; write kinds and one of minor"),
        ([{1: 0, "kinds": []}], "has the unknown key 1"),
        ([{"name": "a", "index": 0, "kinds": []}], "has the unknown key index"),
        ([{"minor": "0", "kinds": []}], "has minor '0'; write a number"),
        ([{"minor": True, "kinds": []}], "has minor True; write a number"),
        ([{"minor": -1, "kinds": []}], "has minor -1; write a number"),
        ([{"uuid": "GPU-1", "kinds": []}], "has uuid 'GPU-1'; write a UUID as nvidia-smi"),
        ([{"product": "", "kinds": []}], "has product ''; write a pattern"),
        ([{"product": "A" * 129, "kinds": []}], "write a pattern of 1 to 128 characters"),
        ([{"minor": 0, "kinds": ["whole"]}], "has kinds ['whole']; write a list of some of gpu"),
        ([{"minor": 0, "kinds": "gpu"}], "has kinds 'gpu'; write a list of some of gpu"),
        ([{"minor": 0, "kinds": {"gpu": True}}], "has kinds {'gpu': True}; write a list"),
        ([{"minor": 0, "kinds": [1]}], "has kinds [1]; write a list of some of gpu"),
    ],
)
def test_what_is_no_rule_is_refused_by_name(written: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)):
        parse_kind_rules(written)


@pytest.mark.parametrize("pattern", ["A", "A" * 128])
def test_a_pattern_has_1_to_128_characters(pattern: str) -> None:
    written = [{"product": pattern, "kinds": []}]
    assert parse_kind_rules(written) == (KindRule(ByProduct(pattern), frozenset()),)
