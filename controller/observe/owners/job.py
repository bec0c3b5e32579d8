"""Job (batch/v1): its pods start one by one, unless they say how many start together."""

from collections.abc import Mapping
from typing import Final

from carina_dra.resource import JsonObject
from controller.observe.owner import OwnerKind, OwnerType, Part, Parts, Place, Shape, number

COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
"""The label of a pod of an Indexed Job."""


def _shape(_: JsonObject) -> Shape:
    return ONE_BY_ONE


def _place(labels: Mapping[str, str]) -> Place:
    return Place(rank=number(labels, COMPLETION_INDEX))


ONE_BY_ONE: Final = Parts((Part("", 1),))
JOB: Final = OwnerType(OwnerKind.JOB, (), _shape, _place)
