"""Job (batch/v1): its pods start one by one, unless they say how many start together."""

from collections.abc import Mapping
from typing import Final

from carina_dra.resource import JsonObject
from controller.observe.owner import (
    GroupPosition,
    GroupShape,
    OwnerKind,
    OwnerType,
    Part,
    Parts,
    number,
)

COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
"""The label of a pod of an Indexed Job."""


def _shape(_: JsonObject) -> GroupShape:
    return ONE_BY_ONE


def _place(labels: Mapping[str, str]) -> GroupPosition:
    return GroupPosition(rank=number(labels, COMPLETION_INDEX))


ONE_BY_ONE: Final = Parts((Part("", 1),))
JOB: Final = OwnerType(OwnerKind.JOB, (), _shape, _place)
