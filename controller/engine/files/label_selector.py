"""Reads label selectors (meta/v1 LabelSelector) of Queues and of any other object.

All become `model.LabelSelector`, with requirements and values in one order. Objects of Kubernetes
were checked by the API server, and have parts of any number: a caller bounds them by
`selector_size` before it reads one. The selectors of Queues are checked here.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Final, TypeAlias

from carina_dra.resource import JsonObject
from carina_dra.resource.errors import BadValueError
from controller.engine.files.checked import (
    LABEL_KEY,
    LABEL_VALUE,
    LONGEST_LABEL,
    LONGEST_NAME,
    Checked,
    Rule,
    WrittenAs,
    items,
    text,
)
from controller.engine.files.value import codec_of
from controller.engine.model.label_selector import (
    LabelRequirement,
    LabelSelector,
    LabelSelectorOperator,
)

_KEY: Final = text("the key of a label", LABEL_KEY, LONGEST_NAME + 1 + LONGEST_LABEL)
_VALUE: Final = text("the value of a label", LABEL_VALUE, LONGEST_LABEL)
_MOST_LABELS: Final = 16
_OPERATORS: Final = frozenset(LabelSelectorOperator)
_WITH_VALUES: Final = (LabelSelectorOperator.IN, LabelSelectorOperator.NOT_IN)

PlainSelector: TypeAlias = list[tuple[str, str, tuple[str, ...]]]
"""Key, operator and values of each requirement, sorted: equal selectors are equal as bytes."""


def plain_selector(selector: JsonObject | None) -> PlainSelector | None:
    """Returns the requirements of a selector as plain values, one for each label that it names.

    Raises:
        KeyError: a requirement has no key or no operator.
        ValueError: a requirement has an operator of a newer API.
    """
    if selector is None:
        return None
    return sorted(_requirements(selector))


def read_selector(
    plain: Iterable[tuple[str, str, tuple[str, ...]]] | None,
) -> LabelSelector | None:
    """Returns the selector that has these requirements."""
    if plain is None:
        return None
    return LabelSelector(
        tuple(
            LabelRequirement(key, LabelSelectorOperator(operator), tuple(values))
            for key, operator, values in plain
        )
    )


def selector_size(selector: JsonObject | None) -> int:
    """Returns the number of labels, requirements and values of a selector."""
    if selector is None:
        return 0
    expressions = selector.get("matchExpressions") or ()
    values = sum(1 + len(expression.get("values") or ()) for expression in expressions)
    return len(selector.get("matchLabels") or ()) + values


def _requirements(selector: JsonObject) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    for key, value in (selector.get("matchLabels") or {}).items():
        yield key, LabelSelectorOperator.IN.value, (value,)
    for expression in selector.get("matchExpressions") or ():
        operator = expression["operator"]
        if operator not in _OPERATORS:
            raise ValueError(f"operator {operator}")
        yield expression["key"], str(operator), tuple(sorted(expression.get("values") or ()))


# Selectors of Queues -----------------------------------------------------------------------------


def _read_labels(value: object) -> dict[str, str]:
    labels: dict[str, str] = codec_of(Mapping[str, str]).read(value)
    if len(labels) > _MOST_LABELS:
        raise BadValueError(f"has {len(labels)} labels; write at most {_MOST_LABELS}")
    for key, found in labels.items():
        _KEY.read(key)
        _VALUE.read(found)
    return labels


_Labels: TypeAlias = Annotated[
    Mapping[str, str],
    Checked(
        _read_labels,
        dict,
        {
            "type": "object",
            "additionalProperties": dict(_VALUE.schema),
            "maxProperties": _MOST_LABELS,
        },
    ),
]


@dataclass(frozen=True, slots=True)
class _WrittenRequirement:
    """A requirement on the labels of a namespace.

    Raises:
        ValueError: `values` do not fit the operator.
    """

    KIND: ClassVar = "LabelRequirement"
    RULES: ClassVar = (
        Rule(
            "(self.operator in ['In', 'NotIn']) == (has(self.values) && self.values.size() > 0)",
            "values: write at least one with In and NotIn, and none with Exists and DoesNotExist",
        ),
    )

    key: Annotated[str, _KEY]
    """The key of a label."""
    operator: LabelSelectorOperator
    """`In`, `NotIn`, `Exists` or `DoesNotExist`. A namespace without the label matches `NotIn`."""
    values: Annotated[tuple[Annotated[str, _VALUE], ...], items(lambda: _VALUE, 64)] = ()
    """The values of `In` and `NotIn`."""

    def __post_init__(self) -> None:
        if (self.operator in _WITH_VALUES) != bool(self.values):
            raise ValueError(self.RULES[0].message)


@dataclass(frozen=True, slots=True)
class _WrittenSelector:
    """The namespaces whose labels meet all requirements. An empty selector selects all.

    The API server labels each namespace with `kubernetes.io/metadata.name`.
    """

    KIND: ClassVar = "LabelSelector"
    RULES: ClassVar = (
        Rule(
            "!has(self.matchLabels) || self.matchLabels.all(key, key.size() <= 317 && "
            f"key.matches(r'{_KEY.schema['pattern']}'))",
            "matchLabels: a key is not the key of a label",
        ),
    )

    match_labels: _Labels = field(default_factory=dict)
    """Labels that a namespace must have."""
    match_expressions: Annotated[
        tuple[_WrittenRequirement, ...], items(lambda: codec_of(_WrittenRequirement), 16)
    ] = ()
    """Requirements that the labels of a namespace must meet."""


def _read(value: Any) -> LabelSelector | None:
    codec_of(_WrittenSelector).read(value)
    return read_selector(plain_selector(value))


def _write(selector: LabelSelector) -> dict[str, Any]:
    """Writes a selector that was read: 16 requirements at most have no place as labels."""
    labels: dict[str, str] = {}
    expressions = []
    for requirement in selector.requirements:
        is_label = requirement.operator is LabelSelectorOperator.IN and len(requirement.values) == 1
        if is_label and requirement.key not in labels and len(labels) < _MOST_LABELS:
            labels[requirement.key] = requirement.values[0]
        else:
            expressions.append(
                _WrittenRequirement(requirement.key, requirement.operator, requirement.values)
            )
    written: dict[str, Any] = codec_of(_WrittenSelector).write(
        _WrittenSelector(labels, tuple(expressions))
    )
    return written


QUEUE_SELECTOR: Final = WrittenAs(_read, _write, _WrittenSelector)
"""The selector of a Queue's namespaces, checked as the API server checks it."""
