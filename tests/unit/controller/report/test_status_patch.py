"""The patch of a status: what changes, and since when a condition has its status."""

from hypothesis import given
from hypothesis import strategies as st

from carina_dra.kube.body import Body
from controller.report.status_patch import is_turn, status_patch
from simulation.api_server.patch import merge

_NOW = 1_000_000_000.0
_THEN = "2000-01-01T00:00:00Z"


def condition(status: str = "False", reason: str = "NoRoom", **fields: str) -> Body:
    return {"type": "Admitted", "status": status, "reason": reason, "message": "", **fields}


def test_a_new_condition_holds_since_now() -> None:
    desired = {"conditions": [condition()]}
    assert status_patch({}, desired, _NOW) == {
        "conditions": [condition(lastTransitionTime="2001-09-09T01:46:40Z")]
    }


def test_another_reason_does_not_change_the_time() -> None:
    present = {"conditions": [condition(lastTransitionTime=_THEN)]}
    patch = status_patch(present, {"conditions": [condition(reason="OverLimit")]}, _NOW)
    assert patch == {"conditions": [condition(reason="OverLimit", lastTransitionTime=_THEN)]}


def test_another_status_changes_the_time() -> None:
    present = {"conditions": [condition(lastTransitionTime=_THEN)]}
    patch = status_patch(present, {"conditions": [condition("True", "Placed")]}, _NOW)
    assert patch["conditions"][0]["lastTransitionTime"] == "2001-09-09T01:46:40Z"


def test_nothing_is_written_of_what_is_as_desired() -> None:
    present = {"phase": "Pending", "conditions": [condition(lastTransitionTime=_THEN)]}
    desired = {"phase": "Pending", "conditions": [condition()]}
    assert status_patch(present, desired, _NOW) == {}


def test_a_turn_is_a_condition_with_another_status_or_reason() -> None:
    present = {"conditions": [condition(lastTransitionTime=_THEN)]}
    assert not is_turn(present, {"conditions": [condition(message="5 nodes")]})
    assert is_turn(present, {"conditions": [condition(reason="OverLimit")]})
    assert is_turn(present, {"conditions": []})
    assert is_turn({}, {"conditions": [condition()]})


_STATUSES = st.dictionaries(
    st.sampled_from("abc"),
    st.integers(0, 2) | st.dictionaries(st.sampled_from("xy"), st.integers(0, 2)),
)


@given(present=_STATUSES, desired=_STATUSES)
def test_the_patched_status_is_the_desired_one(present: Body, desired: Body) -> None:
    assert merge(present, status_patch(present, desired, _NOW)) == desired
