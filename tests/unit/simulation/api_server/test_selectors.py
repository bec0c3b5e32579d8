import pytest

from simulation.api_server.failure import Failure
from simulation.api_server.selectors import selector

FIELDS = {"spec.unschedulable": ("spec", "unschedulable"), "spec.nodeName": ("spec", "nodeName")}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ("metadata.name=a", True),
        ("metadata.name!=a", False),
        ("metadata.namespace==team", True),
        ("spec.unschedulable=true", True),
        ("spec.nodeName=", True),
        ("spec.nodeName!=n1", True),
        ("metadata.name=a,spec.nodeName=n1", False),
    ],
)
def test_fields(fields: str, expected: bool) -> None:
    body = {"metadata": {"name": "a", "namespace": "team"}, "spec": {"unschedulable": True}}
    assert selector("", fields, FIELDS)(body) is expected


@pytest.mark.parametrize(
    ("labels", "fields"),
    [("a b", ""), ("a in", ""), ("", "spec.size=1"), ("", "metadata.name"), ("", "a=b=c")],
)
def test_what_makes_no_sense_is_refused(labels: str, fields: str) -> None:
    with pytest.raises(Failure) as failure:
        selector(labels, fields, FIELDS)
    assert failure.value.code == 400
