"""On random expressions CEL answers as upstream's own code does."""

import json
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from tests import conformance
from tests.conformance.selector_answer import selector_answer
from tests.oracle.upstream import Upstream
from tests.samples.expressions import device, random_expression

pytestmark = pytest.mark.oracle

_EXPRESSIONS = 10_000
_PART = 2_500
_KINDS = ("match", "runtimeError", "compileError")


@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", range(0, _EXPRESSIONS, _PART))
def test_same_answer(upstream_cel: Upstream, first: int) -> None:
    answers: Counter[str] = Counter()
    for seed in range(first, first + _PART):
        expression = random_expression(Random(seed))
        asked = {"expression": expression, "device": device(), "features": []}
        expected = upstream_cel.answer(asked)
        if "internal error" in expected.get("runtimeError", ""):
            continue  # upstream falls over its own feet
        actual = selector_answer(expression, device())
        kind = next(kind for kind in _KINDS if kind in expected)
        assert actual.get("match") == expected.get("match"), (expression, expected, actual)
        assert kind in actual, (expression, expected, actual)
        answers[kind] += 1
    assert min(answers[kind] for kind in _KINDS) > _PART / 20, "the expressions say something"


def test_own_vectors_are_what_upstream_answers(upstream_cel: Upstream) -> None:
    written = Path(conformance.__file__).parent / "vectors" / "cel" / "functions.json"
    for vector in json.loads(written.read_text()):
        asked = {"expression": vector["expression"], "device": device(), "features": []}
        answer = upstream_cel.answer(asked)
        assert vector["expect"].keys() <= answer.keys(), vector
        assert vector["expect"].get("match") == answer.get("match"), vector
