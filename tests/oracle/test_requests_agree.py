"""Random pods request of a node what kube-scheduler says that they do."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from controller.observe.needs import needs_of
from tests.oracle.upstream import Upstream

pytestmark = pytest.mark.oracle

_AMOUNTS = st.sampled_from(["0", "1", "2", "3", "1500m", "0.1", "1Ki", "2k", "0.0001"])
_NAMES = st.sampled_from(["cpu", "memory", "ephemeral-storage", "example.com/gpu", "hugepages-2Mi"])
_LISTS = st.dictionaries(_NAMES, _AMOUNTS, max_size=3)


def _lacking(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


@st.composite
def _pods(draw: st.DrawFn) -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": [], "initContainers": []}
    status: dict[str, Any] = {"containerStatuses": [], "initContainerStatuses": []}
    for kind, statuses in (
        ("containers", "containerStatuses"),
        ("initContainers", "initContainerStatuses"),
    ):
        for index in range(draw(st.integers(0, 3))):
            container: dict[str, Any] = {"name": f"{kind.lower()}-{index}"}
            container["resources"] = {"requests": draw(_LISTS)}
            if kind == "initContainers" and draw(st.booleans()):
                container["restartPolicy"] = "Always"
            spec[kind].append(container)
            if draw(st.booleans()):
                found = {"name": container["name"], "allocatedResources": draw(_lacking(_LISTS))}
                found["resources"] = draw(_lacking(st.fixed_dictionaries({"requests": _LISTS})))
                status[statuses].append(found)
    spec["overhead"] = draw(_lacking(_LISTS))
    spec["resources"] = draw(_lacking(st.fixed_dictionaries({"requests": _LISTS})))
    reason = draw(_lacking(st.sampled_from(["Infeasible", "Deferred"])))
    if reason is not None:
        status["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": reason}]
    return {"metadata": {"name": "p", "namespace": "team"}, "spec": spec, "status": status}


@settings(
    max_examples=500,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(pod=_pods())
def test_requests_are_those_of_upstream(upstream_requests: Upstream, pod: dict[str, Any]) -> None:
    needs = needs_of(pod)
    found = {"cpu": needs.cpu, "memory": needs.memory, **dict(needs.extended)}

    expected = upstream_requests.answer(pod)

    assert {name: amount for name, amount in found.items() if amount} == {
        name: amount for name, amount in expected.items() if amount
    }
