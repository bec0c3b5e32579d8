"""What the hostile tenant writes follows from seed and index, and stays in its namespace."""

import json
from collections import Counter

from tests.integration.controller.fuzz import generator
from tests.integration.controller.fuzz.generator import Create, Delete, Target
from tests.integration.controller.fuzz.recursion import deep_recursion

_TARGET = Target("ns", ("mine",), ("another",))
_STEPS = 300
_LARGEST = 1_500_000


def _creations() -> list[Create]:
    steps = (generator.step(7, index, _TARGET) for index in range(_STEPS))
    return [step for step in steps if isinstance(step, Create)]


def test_a_step_follows_from_seed_and_index() -> None:
    assert generator.step(7, 41, _TARGET) == generator.step(7, 41, _TARGET)
    assert generator.step(7, 41, _TARGET) != generator.step(8, 41, _TARGET)


def test_all_recipes_and_deletions_occur() -> None:
    recipes = Counter(step.recipe for step in _creations())
    assert len(recipes) == 11
    assert any(isinstance(generator.step(7, at, _TARGET), Delete) for at in range(_STEPS))


def test_objects_are_in_the_namespace_and_have_names_of_their_own() -> None:
    names = set()
    for step in _creations():
        for resource, body in step.objects:
            assert body["metadata"]["namespace"] == "ns"
            name = resource.plural, body["metadata"]["name"]
            assert name not in names
            names.add(name)


def test_no_object_is_larger_than_the_api_server_takes() -> None:
    with deep_recursion():
        for step in _creations():
            for _, body in step.objects:
                assert len(json.dumps(body)) < _LARGEST
