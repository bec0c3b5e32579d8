"""Where conformance vectors are: the project's own, and in the folder that --vectors names."""

import json
from pathlib import Path

import pytest

_OWN = Path(__file__).parent / "vectors"
_KINDS = {"allocation_vector": "allocator", "selector_vector": "cel"}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Makes a test of each vector; of a kind of which there is none, one that says so."""
    for argument, kind in _KINDS.items():
        if argument in metafunc.fixturenames:
            given = Path(metafunc.config.getoption("vectors"))
            vectors = [*_read(_OWN / kind), *_read(given / kind)]
            parameters = [pytest.param(each, id=str(each["name"])) for each in vectors]
            if not (given / kind).is_dir():
                reason = f"there are no vectors in {given / kind}: name their folder with --vectors"
                parameters.append(pytest.param({}, id="given", marks=pytest.mark.skip(reason)))
            metafunc.parametrize(argument, parameters)


def _read(folder: Path) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for path in sorted(folder.glob("*.json")):
        content = json.loads(path.read_text())
        found += content if isinstance(content, list) else [content]
    return found
