"""Which namespaces may use a queue: by name, or by the labels of the namespace."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, ClassVar, Final, TypeAlias, assert_never

from carina_dra.resource.errors import BadValueError
from controller.engine.files.checked import (
    DNS_LABEL,
    LABEL_KEY,
    LABEL_VALUE,
    LONGEST_LABEL,
    LONGEST_NAME,
    Checked,
    Rule,
    items,
    text,
)
from controller.engine.files.value import codec_of

_KEY: Final = text("the key of a label", LABEL_KEY, LONGEST_NAME + 1 + LONGEST_LABEL)
_VALUE: Final = text("the value of a label", LABEL_VALUE, LONGEST_LABEL)
_NAME: Final = text("the name of a namespace", DNS_LABEL, LONGEST_LABEL)
_MOST_LABELS: Final = 16


class Operator(StrEnum):
    """How the labels of a namespace are compared with a requirement."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


@dataclass(frozen=True, slots=True)
class LabelRequirement:
    """A requirement on the labels of a namespace.

    Raises:
        ValueError: `values` do not fit the operator.
    """

    RULES: ClassVar = (
        Rule(
            "(self.operator in ['In', 'NotIn']) == (has(self.values) && self.values.size() > 0)",
            "values: write at least one with In and NotIn, and none with Exists and DoesNotExist",
        ),
    )

    key: Annotated[str, _KEY]
    """The key of a label."""
    operator: Operator
    """`In`, `NotIn`, `Exists` or `DoesNotExist`. A namespace without the label matches `NotIn`."""
    values: Annotated[tuple[Annotated[str, _VALUE], ...], items(lambda: _VALUE, 64)] = ()
    """The values of `In` and `NotIn`."""

    def __post_init__(self) -> None:
        if (self.operator in (Operator.IN, Operator.NOT_IN)) != bool(self.values):
            raise ValueError(
                f"values: write at least one with {Operator.IN} and {Operator.NOT_IN}, and none "
                f"with {Operator.EXISTS} and {Operator.DOES_NOT_EXIST}"
            )

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether labels meet the requirement."""
        match self.operator:
            case Operator.IN:
                return labels.get(self.key) in self.values
            case Operator.NOT_IN:
                return labels.get(self.key) not in self.values
            case Operator.EXISTS:
                return self.key in labels
            case Operator.DOES_NOT_EXIST:
                return self.key not in labels
        assert_never(self.operator)


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
class LabelSelector:
    """The namespaces whose labels meet all requirements. An empty selector selects all.

    The API server labels each namespace with `kubernetes.io/metadata.name`.
    """

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
        tuple[LabelRequirement, ...], items(lambda: codec_of(LabelRequirement), 16)
    ] = ()
    """Requirements that the labels of a namespace must meet."""

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether the labels of a namespace meet all requirements."""
        return all(labels.get(key) == value for key, value in self.match_labels.items()) and all(
            requirement.matches(labels) for requirement in self.match_expressions
        )


@dataclass(frozen=True, slots=True)
class Namespaces:
    """The namespaces that are named, and those that a selector selects.

    Raises:
        ValueError: there are neither names nor a selector.
    """

    RULES: ClassVar = (
        Rule(
            "has(self.names) || has(self.selector)",
            "namespaces: write names, selector or both; selector: {} selects all",
        ),
    )

    names: (
        Annotated[tuple[Annotated[str, _NAME], ...], items(lambda: _NAME, 256, least=1)] | None
    ) = None
    """Names of namespaces."""
    selector: LabelSelector | None = None
    """Selects namespaces by their labels. Restrict who may change these."""

    def __post_init__(self) -> None:
        if self.names is None and self.selector is None:
            raise ValueError("write names, selector or both; selector: {} selects all")

    def allows(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether a namespace with a name and labels is among them."""
        return name in (self.names or ()) or (
            self.selector is not None and self.selector.matches(labels)
        )
