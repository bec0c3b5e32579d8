"""The functions of expressions, by name.

They are those of the standard environment (CEL specification), of cel-go's extensions and of
Kubernetes (k8s.io/apiserver v0.37.0 `pkg/cel/library`) that DRA enables.
"""

from collections.abc import Mapping
from typing import Final

from carina_dra.cel.functions import (
    formats,
    lists,
    networks,
    optionals,
    quantities,
    regular_expression,
    standard,
    strings,
    times,
    urls,
)
from carina_dra.cel.functions.overload import Overload


def _by_name() -> Mapping[str, tuple[Overload, ...]]:
    found: dict[str, list[Overload]] = {}
    for module in (
        standard,
        strings,
        regular_expression,
        lists,
        optionals,
        times,
        quantities,
        networks,
        urls,
        formats,
    ):
        for overload in module.OVERLOADS:
            found.setdefault(overload.name, []).append(overload)
    return {name: tuple(overloads) for name, overloads in found.items()}


FUNCTIONS: Final = _by_name()
"""The overloads of each function."""
