"""The documents of a file: JSON, which is read as JSON, or YAML."""

import json
import re
from collections.abc import Iterator
from typing import Any, Final, NoReturn

from carina_dra.manifests.yaml_document import DocumentError, yaml_documents

_JSON: Final = re.compile(r'\s*\{\s*"')
"""How a file begins that is read as JSON: YAML would take broken JSON for other values."""
_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_SPACE: Final = re.compile(r"\s*")


def decode_text(content: bytes) -> str:
    """The text of a file, without a byte order mark.

    Raises:
        DocumentError: it is not UTF-8.
    """
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DocumentError(
            f"line {line}: byte 0x{content[error.start]:02X} is not UTF-8; is this text?"
        ) from None


def documents(text: str) -> Iterator[object]:
    """The documents of a text in order; an empty one is None.

    Raises:
        DocumentError: the next document is not valid JSON or YAML.
    """
    found = _json_documents(text) if _JSON.match(text) else _yaml_documents(text)
    may_have_halves = _SURROGATE.search(text) is not None
    for document in found:
        if may_have_halves:
            _refuse_half_characters(document)
        yield document


def _refuse_half_characters(document: object) -> None:
    """Half of a surrogate pair cannot be written: neither to the user nor to an API server."""
    try:
        json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = ord(error.object[error.start])
        raise DocumentError(f"a string has \\u{half:04x}, which is half a character") from None


def _yaml_documents(text: str) -> Iterator[object]:
    try:
        yield from yaml_documents(text)
    except DocumentError as error:
        raise DocumentError(f"is not valid YAML: {error}") from None


def _json_documents(text: str) -> Iterator[object]:
    """Objects one after the other.

    Raises:
        DocumentError: the next object is not JSON, or Kubernetes would read it otherwise.
    """
    decoder = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_refuse_constant)
    position = _after_space(text, 0)
    while position < len(text):
        try:
            value, end = decoder.raw_decode(text, position)
        except RecursionError:
            raise DocumentError("is not valid JSON: it is nested too deeply") from None
        except json.JSONDecodeError as error:
            raise DocumentError(
                f"is not valid JSON: line {error.lineno}, column {error.colno}: {error.msg}"
            ) from None
        except DocumentError:
            raise
        except ValueError:
            raise DocumentError("is not valid JSON: a number has too many digits") from None
        yield value
        position = _after_space(text, end)


def _after_space(text: str, position: int) -> int:
    found = _SPACE.match(text, position)
    return found.end() if found else position


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise DocumentError(
            f"is not valid JSON: the key {twice!r:.80} occurs twice in {made!r:.80}"
        )
    return made


def _refuse_constant(name: str) -> NoReturn:
    raise DocumentError(f"is not valid JSON: {name} is not a number of JSON")
