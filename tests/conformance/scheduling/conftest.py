"""Where vectors of the scheduler are: `scheduling/` in the folder that --vectors names."""

import json
from pathlib import Path

import pytest

_KINDS = {"fair_share_vector": "fairshare"}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Makes a test of each vector, named as its file; where there are none, one that says so."""
    folder = Path(metafunc.config.getoption("vectors")) / "scheduling"
    for argument, kind in _KINDS.items():
        if argument in metafunc.fixturenames:
            vectors = [(path.stem, json.loads(path.read_text())) for path in folder.glob("*.json")]
            parameters = [
                pytest.param({**vector, "file": name}, id=name)
                for name, vector in sorted(vectors)
                if vector["kind"] == kind
            ]
            if not folder.is_dir():
                reason = f"there are no vectors in {folder}: name their folder with --vectors"
                parameters.append(pytest.param({}, id="given", marks=pytest.mark.skip(reason)))
            metafunc.parametrize(argument, parameters)
