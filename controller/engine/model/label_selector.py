"""Label selectors (meta/v1 LabelSelector) as values that can be compared and looked up.

The rules are those of `LabelSelectorAsSelector` in apimachinery (`pkg/apis/meta/v1/helpers.go`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never


class LabelSelectorOperator(StrEnum):
    """How a label is compared with the values."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


@dataclass(frozen=True, slots=True)
class LabelRequirement:
    """A requirement on one label."""

    key: str
    operator: LabelSelectorOperator
    values: tuple[str, ...] = ()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels meets it; without the label, it meets `NotIn`."""
        value = labels.get(self.key)
        match self.operator:
            case LabelSelectorOperator.IN:
                return value in self.values
            case LabelSelectorOperator.NOT_IN:
                return value not in self.values
            case LabelSelectorOperator.EXISTS:
                return value is not None
            case LabelSelectorOperator.DOES_NOT_EXIST:
                return value is None
        assert_never(self.operator)


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """Requirements that must all hold; without any, all objects match."""

    requirements: tuple[LabelRequirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels is selected."""
        return all(requirement.holds(labels) for requirement in self.requirements)


def with_labels(labels: Mapping[str, str]) -> LabelSelector:
    """The selector of the objects that have these labels (`matchLabels`)."""
    return LabelSelector(
        tuple(
            LabelRequirement(key, LabelSelectorOperator.IN, (value,))
            for key, value in sorted(labels.items())
        )
    )
