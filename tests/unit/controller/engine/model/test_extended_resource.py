"""Which DeviceClass an extended resource asks for."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from carina_dra.resource import DeviceClass, ObjectMeta
from controller.engine.model.extended_resource import classes_by_resource

NAME = "nvidia.com/gpu"


def of(name: str, resource: str | None = NAME, day: int = 1) -> DeviceClass:
    stamp = datetime(2026, 1, day, tzinfo=UTC)
    made = DeviceClass(ObjectMeta(name=name, creation_timestamp=stamp))
    return replace(made, spec=replace(made.spec, extended_resource_name=resource))


@pytest.mark.parametrize(("older", "newer"), ["ab", "ba"])
def test_newest_class_of_a_name_counts(older: str, newer: str) -> None:
    classes = [of(older), of(newer, day=2)]
    assert classes_by_resource(classes)[NAME] == newer
    assert classes_by_resource(classes[::-1])[NAME] == newer


def test_of_equally_old_classes_of_a_name_the_first_counts() -> None:
    assert classes_by_resource([of("b"), of("a")])[NAME] == "a"
    assert classes_by_resource([of("a"), of("b")])[NAME] == "a"


def test_every_class_has_a_name_of_its_own() -> None:
    assert classes_by_resource([of("a", None)]) == {"deviceclass.resource.kubernetes.io/a": "a"}
