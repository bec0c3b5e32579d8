"""What keeps the plugin small changes nothing that anybody can tell."""

import gc
from dataclasses import FrozenInstanceError, dataclass, replace
from types import ModuleType
from weakref import ref

import pytest

from kubelet_plugin.memory import share_refusals


def _shared(cls: type) -> None:
    module = ModuleType("values")
    vars(module)[cls.__name__] = cls
    share_refusals([module])


def test_the_class_that_it_was_before_its_slots_is_given_back() -> None:
    class Before:
        name: str

    before = ref(Before)
    after = dataclass(frozen=True, slots=True)(Before)
    del Before
    gc.collect()
    assert before() is not None  # else nothing is left to be shared: see the next CPython
    _shared(after)
    assert before() is None


def test_frozen_dataclasses_refuse_changes_still() -> None:
    @dataclass(frozen=True, slots=True)
    class Value:
        name: str

    _shared(Value)
    value = Value("a")
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'name'"):
        value.name = "b"  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'name'"):
        del value.name
    with pytest.raises(FrozenInstanceError, match="other"):
        value.other = 1  # type: ignore[attr-defined]
    assert replace(value, name="b") == Value("b")


def test_a_plain_class_derived_from_one_has_fields_of_its_own() -> None:
    @dataclass(frozen=True, slots=True)
    class Value:
        name: str

    class Derived(Value):
        pass

    _shared(Value)
    derived = Derived("a")
    derived.note = "mine"  # type: ignore[attr-defined]
    del derived.note  # type: ignore[attr-defined]
    with pytest.raises(FrozenInstanceError):
        derived.name = "b"  # type: ignore[misc]


def test_what_is_not_frozen_is_left_alone() -> None:
    @dataclass
    class Open:
        name: str

    class Other:
        pass

    module = ModuleType("values")
    vars(module).update(Open=Open, Other=Other, number=1)
    share_refusals([module, None])
    opened = Open("a")
    opened.name = "b"
    assert opened == Open("b")
    assert "__setattr__" not in vars(Other)
