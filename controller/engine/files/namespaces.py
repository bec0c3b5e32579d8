"""Which namespaces may use a queue: by name, or by the labels of the namespace."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

from controller.engine.files.checked import DNS_LABEL, LONGEST_LABEL, Rule, items, text
from controller.engine.files.label_selector import QUEUE_SELECTOR
from controller.engine.model.label_selector import LabelSelector

_NAME: Final = text("the name of a namespace", DNS_LABEL, LONGEST_LABEL)


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
    selector: Annotated[LabelSelector, QUEUE_SELECTOR] | None = None
    """Selects namespaces by their labels. Restrict who may change these."""

    def __post_init__(self) -> None:
        if self.names is None and self.selector is None:
            raise ValueError("write names, selector or both; selector: {} selects all")

    def allows(self, name: str, labels: Mapping[str, str]) -> bool:
        """Whether a namespace with a name and labels is among them."""
        return name in (self.names or ()) or (
            self.selector is not None and self.selector.matches(labels)
        )
