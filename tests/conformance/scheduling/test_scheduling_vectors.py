"""The engine decides each vector as it says."""

from pathlib import Path

import pytest

from controller.engine.decide.cycle import plan
from tests.conformance.scheduling.departures import DEPARTURES
from tests.conformance.scheduling.reading import read_vector, vector_paths
from tests.conformance.scheduling.rounds import run

_OWN = Path(__file__).parents[1] / "vectors" / "scheduling"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Makes a test of each vector that applies; without any given, one that says so."""
    if "vector_path" in metafunc.fixturenames:
        given = vector_paths(Path(metafunc.config.getoption("vectors")))
        parameters = [pytest.param(path, id=path.name) for path in (*vector_paths(_OWN), *given)]
        if not given:
            reason = "there are no scheduling vectors: name their folder with --vectors"
            parameters.append(pytest.param(None, id="given", marks=pytest.mark.skip(reason)))
        metafunc.parametrize("vector_path", parameters)


def test_vector(vector_path: Path) -> None:
    vector = read_vector(vector_path.read_text())
    if not vector.strict.status:
        pytest.skip("the vector does not say what must come of it")
    result = run(vector, plan)
    assert not result.unsound
    if vector_path.name in DEPARTURES:
        assert result.differences, f"it is followed now; listed: {DEPARTURES[vector_path.name]}"
    else:
        assert not result.differences, "\n".join(map(str, result.differences))
