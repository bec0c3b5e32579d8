"""What counts as the same answer."""

from typing import Any

import pytest

from tests.oracle.compare import difference

_RESULT = {"request": "r", "driver": "d", "pool": "p", "device": "x"}


def _answer(*results: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"allocations": [{"devices": {"results": list(results), **more}}]}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            _answer(_RESULT, {**_RESULT, "device": "y"}),
            _answer({**_RESULT, "device": "y"}, _RESULT),
        ),
        (_answer({**_RESULT, "shareID": "a"}), _answer({**_RESULT, "shareID": "b"})),
        (
            _answer({**_RESULT, "consumedCapacity": {"m": "1Gi"}}),
            _answer({**_RESULT, "consumedCapacity": {"m": "1024Mi"}}),
        ),
        (_answer({**_RESULT, "adminAccess": False}), _answer(_RESULT)),
        ({"error": "a", "nodeLocal": True}, {"error": "b", "nodeLocal": True}),
        ({"unsatisfiable": True}, {"unsatisfiable": True, "searchSteps": 3}),
    ],
)
def test_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert difference(one, other) is None


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (_answer(_RESULT), _answer({**_RESULT, "device": "y"})),
        (_answer(_RESULT), _answer({**_RESULT, "shareID": "b"})),
        (_answer(_RESULT), {"unsatisfiable": True}),
        (_answer(_RESULT, config=[{"source": "FromClass"}]), _answer(_RESULT)),
        ({"error": "a", "nodeLocal": True}, {"error": "a", "nodeLocal": False}),
        ({"error": "a", "nodeLocal": False}, {"unsatisfiable": True}),
    ],
)
def test_different(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert difference(one, other) is not None
