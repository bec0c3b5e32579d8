"""docs/reference/settings.md: the settings of the processes, from their models."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from pydantic.fields import FieldInfo

from carina_dra.process.metavar import Metavar, metavar
from carina_dra.process.settings import ENVIRONMENT_PREFIX, FILE_ONLY, ProcessSettings, written
from controller.settings import Settings
from documentation import markdown
from documentation.markdown import code, paragraph, sentence, table
from kubelet_plugin.settings import PluginSettings
from sharing.settings import SharingSettings

_BOUNDS: Final = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}


def page() -> str:
    """The page, in Markdown."""
    return markdown.page(
        "Settings",
        "the settings of the processes",
        paragraph(
            "Settings are read from flags, the environment, a file (`--config FILE`, in YAML) and "
            "defaults, in this precedence. The "
            f"setting `driver_name` is the flag `--driver-name` and the variable "
            f"`{ENVIRONMENT_PREFIX}DRIVER_NAME`. Unknown settings in the file and "
            "unknown flags are errors."
        ),
        _section("carina-kubelet-plugin", PluginSettings),
        _section("carina-sharing", SharingSettings),
        _section("carina-controller", Settings),
    )


def _section(program: str, model: type[ProcessSettings]) -> Iterator[str]:
    yield f"## {program}"
    yield ""
    yield from table(
        ("setting", "value", "default", "meaning"),
        (_row(name, field) for name, field in model.model_fields.items()),
    )


def _row(name: str, field: FieldInfo) -> tuple[str, str, str, str]:
    meaning = sentence(field.description or "")
    if FILE_ONLY in field.metadata:
        meaning += f" {sentence(FILE_ONLY)}"
    return code(name), _value(field), _default(field), meaning


def _value(field: FieldInfo) -> str:
    if FILE_ONLY in field.metadata:
        forms = (known.text for known in field.metadata if isinstance(known, Metavar))
        return code(next(forms, "MAPPING"))
    bounds = ", ".join(_bounds(field.metadata))
    return code(metavar(field.annotation, field.metadata)) + (f", {bounds}" if bounds else "")


def _bounds(metadata: Iterable[Any]) -> Iterator[str]:
    for constraint in metadata:
        for name, word in _BOUNDS.items():
            if (bound := getattr(constraint, name, None)) is not None:
                yield f"{word} {bound}"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    return "" if field.default in (None, {}, ()) else code(written(field.default))
