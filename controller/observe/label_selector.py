"""Label selectors (meta/v1 LabelSelector): which objects they mean, by their labels.

The rules are those of `LabelSelectorAsSelector` in apimachinery (`pkg/apis/meta/v1/helpers.go`).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, assert_never

from carina_dra.resource import JsonObject
from carina_dra.resource.schema import Struct
from controller.engine.model import label_selector as model
from controller.engine.model.label_selector import LabelSelectorOperator

_OPERATORS: Final = frozenset(LabelSelectorOperator)


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


def plain_selector(selector: JsonObject | None) -> list[tuple[str, str, tuple[str, ...]]] | None:
    """The requirements of a selector as plain values, each label that it names being one.

    Raises:
        ValueError: a requirement is of a newer API.
    """
    if selector is None:
        return None
    return sorted(_requirements(selector))


def read_selector(
    plain: Iterable[tuple[str, str, tuple[str, ...]]] | None,
) -> model.LabelSelector | None:
    """The selector that has these requirements."""
    if plain is None:
        return None
    return model.LabelSelector(
        tuple(
            model.LabelRequirement(key, LabelSelectorOperator(operator), tuple(values))
            for key, operator, values in plain
        )
    )


def selector_size(selector: JsonObject | None) -> int:
    """How many labels, requirements and values a selector has."""
    if selector is None:
        return 0
    expressions = selector.get("matchExpressions") or ()
    values = sum(1 + len(each.get("values") or ()) for each in expressions)
    return len(selector.get("matchLabels") or ()) + values


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


def _requirements(selector: JsonObject) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    for key, value in (selector.get("matchLabels") or {}).items():
        yield key, LabelSelectorOperator.IN.value, (value,)
    for expression in selector.get("matchExpressions") or ():
        operator = expression["operator"]
        if operator not in _OPERATORS:
            raise ValueError(f"operator {operator}")
        yield expression["key"], str(operator), tuple(sorted(expression.get("values") or ()))
