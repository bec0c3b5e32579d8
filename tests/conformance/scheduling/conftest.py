"""Where vectors of fair shares are: in the folder that --vectors names, or `scheduling` there."""

import json
from operator import itemgetter
from pathlib import Path

import pytest

from tests.conformance.scheduling.reading import folder_of

_KINDS = {"fair_share_vector": "fairshare"}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Makes a test of each vector, named as its file; where there are none, one that says so."""
    folder = folder_of(Path(metafunc.config.getoption("vectors")))
    for argument, kind in _KINDS.items():
        if argument in metafunc.fixturenames:
            vectors = [(path.stem, json.loads(path.read_text())) for path in folder.glob("*.json")]
            parameters = [
                pytest.param({**vector, "file": name}, id=name)
                for name, vector in sorted(vectors, key=itemgetter(0))
                if isinstance(vector, dict) and vector.get("kind") == kind
            ]
            if not parameters:
                reason = f"there are no vectors in {folder}: name their folder with --vectors"
                parameters.append(pytest.param({}, id="given", marks=pytest.mark.skip(reason)))
            metafunc.parametrize(argument, parameters)
