"""Label selectors (meta/v1 LabelSelector): which objects they mean, by their labels.

The rules are those of `LabelSelectorAsSelector` in apimachinery (`pkg/apis/meta/v1/helpers.go`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import assert_never

from carina_dra.resource import JsonObject
from carina_dra.resource.schema import Struct


class LabelSelectorOperator(StrEnum):
    """How a label is compared with the values."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


@dataclass(frozen=True, slots=True)
class LabelSelectorRequirement(Struct):
    """A requirement on one label."""

    key: str
    operator: LabelSelectorOperator
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LabelSelector(Struct):
    """Requirements that must all hold; without any, all objects match."""

    match_labels: Mapping[str, str] = field(default_factory=dict)
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels is meant."""
        return all(labels.get(key) == value for key, value in self.match_labels.items()) and all(
            _holds(requirement, labels) for requirement in self.match_expressions
        )


def _holds(requirement: LabelSelectorRequirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(requirement.key)
    match requirement.operator:
        case LabelSelectorOperator.IN:
            return value in requirement.values
        case LabelSelectorOperator.NOT_IN:
            return value not in requirement.values
        case LabelSelectorOperator.EXISTS:
            return value is not None
        case LabelSelectorOperator.DOES_NOT_EXIST:
            return value is None
    assert_never(requirement.operator)


def exact_labels(selector: JsonObject | None) -> dict[str, str] | None:
    """The labels that a selector names one by one; None if it says anything else.

    `In` with one value names a label; the API server writes `matchLabelKeys` in this way. No
    selector at all matches nothing, which no labels say.
    """
    if selector is None:
        return None
    labels = dict(selector.get("matchLabels") or {})
    for each in selector.get("matchExpressions") or ():
        values = each.get("values") or []
        if each.get("operator") != LabelSelectorOperator.IN or len(values) != 1:
            return None
        if labels.setdefault(each["key"], values[0]) != values[0]:
            return None
    return labels
