"""What a pod needs of a node, from its body."""

from typing import Any

import pytest

from carina_dra.resource import (
    NodeSelector,
    NodeSelectorOperator,
    NodeSelectorRequirement,
    NodeSelectorTerm,
)
from controller.engine.model.label_selector import LabelSelector, with_labels
from controller.engine.model.pod import (
    PodAffinity,
    PodNeeds,
    PodSelection,
    PodTolerationOperator,
    SpreadConstraint,
    Toleration,
)
from controller.engine.model.queue import QUEUE_LABEL
from controller.names import NODE_ANNOTATION
from controller.observe.needs import needs_of

GI = 2**30
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def _body(spec: dict[str, Any], status: dict[str, Any] | None = None, **metadata: Any) -> Any:
    labels = {QUEUE_LABEL: "research"}
    return {
        "metadata": {"name": "p", "namespace": "team", "labels": labels, **metadata},
        "spec": {"containers": [], **spec},
        "status": status or {},
    }


def _needs(spec: dict[str, Any], status: dict[str, Any] | None = None) -> PodNeeds:
    return needs_of(_body(spec, status))


def _container(name: str = "main", restart: str | None = None, **requests: str) -> Any:
    made: dict[str, Any] = {"name": name, "resources": {"requests": requests}}
    return made if restart is None else {**made, "restartPolicy": restart}


# Requests ----------------------------------------------------------------------------------------

# Cases of TestPodResourceRequests and TestPodLevelResourceRequests in k8s.io/component-helpers
# v0.37.0 (resource/helpers_test.go); the cpu is in milli-CPU here.
_SIDECAR = "Always"


@pytest.mark.parametrize(
    ("spec", "cpu"),
    [
        pytest.param({}, 0, id="no containers"),
        pytest.param({"containers": [_container(cpu="100m")]}, 100, id="one container"),
        pytest.param(
            {"containers": [_container(cpu="1")], "initContainers": [_container("i", cpu="4")]},
            4000,
            id="larger init container",
        ),
        pytest.param(
            {
                "containers": [_container("a", cpu="2"), _container("b", cpu="3")],
                "initContainers": [_container("i", cpu="2")],
            },
            5000,
            id="larger containers",
        ),
        pytest.param(
            {
                "containers": [_container("a", cpu="2"), _container("b", cpu="3")],
                "initContainers": [_container("i", cpu="2")],
                "overhead": {"cpu": "1"},
            },
            6000,
            id="overhead",
        ),
        pytest.param(
            {
                "containers": [_container(cpu="1")],
                "initContainers": [_container("s", _SIDECAR, cpu="1")],
            },
            2000,
            id="sidecar",
        ),
        pytest.param(
            {
                "containers": [_container(cpu="1")],
                "initContainers": [
                    _container("s", _SIDECAR, cpu="1"),
                    _container("i", cpu="5"),
                ],
            },
            6000,
            id="sidecar before a larger init container",
        ),
        pytest.param(
            {
                "containers": [_container(cpu="1")],
                "initContainers": [
                    _container("i", cpu="5"),
                    _container("s", _SIDECAR, cpu="1"),
                ],
            },
            5000,
            id="sidecar after a larger init container",
        ),
        pytest.param(
            {
                "containers": [_container(cpu="1")],
                "initContainers": [
                    _container("i1", cpu="5"),
                    _container("s1", _SIDECAR, cpu="1"),
                    _container("s2", _SIDECAR, cpu="2"),
                    _container("i2", cpu="2"),
                ],
            },
            5000,
            id="init containers around sidecars",
        ),
        pytest.param(
            {"containers": [_container(cpu="1")], "resources": {"requests": {"cpu": "10"}}},
            10_000,
            id="the pod's own request instead of its containers'",
        ),
        pytest.param(
            {
                "containers": [_container(cpu="1")],
                "resources": {"requests": {"cpu": "10"}},
                "overhead": {"cpu": "5"},
            },
            15_000,
            id="overhead beside the pod's own request",
        ),
        pytest.param(
            {"containers": [_container(cpu="1")], "resources": {"requests": {"memory": "1Gi"}}},
            1000,
            id="the pod's own request of another resource",
        ),
    ],
)
def test_requests_are_those_of_kube_scheduler(spec: dict[str, Any], cpu: int) -> None:
    assert _needs(spec).cpu == cpu


def test_each_resource_has_its_own_maximum() -> None:
    needs = _needs(
        {
            "containers": [_container(cpu="2", memory="1Gi")],
            "initContainers": [_container("i", cpu="1", memory="4Gi")],
        }
    )
    assert (needs.cpu, needs.memory) == (2000, 4 * GI)


def test_amounts_are_rounded_up() -> None:
    needs = _needs({"containers": [_container(cpu="1.0001", memory="1500m")]})
    assert (needs.cpu, needs.memory) == (1001, 2)


def test_all_other_resources_are_extended_ones() -> None:
    requests = {"nvidia.com/gpu": "2", "hugepages-2Mi": "1Gi", "ephemeral-storage": "1k"}
    needs = _needs({"containers": [_container(**requests), _container("b", **requests)]})
    assert needs.extended == (
        ("ephemeral-storage", 2000),
        ("hugepages-2Mi", 2 * GI),
        ("nvidia.com/gpu", 4),
    )


def test_a_request_of_nothing_is_none() -> None:
    assert _needs({"containers": [_container(**{"nvidia.com/gpu": "0"})]}).extended == ()


def test_extended_resources_are_not_requested_for_the_whole_pod() -> None:
    needs = _needs({"resources": {"requests": {"nvidia.com/gpu": "2", "hugepages-2Mi": "4Mi"}}})
    assert needs.extended == (("hugepages-2Mi", 4 * 2**20),)


def _status(allocated: str, used: str, *, infeasible: bool = False) -> dict[str, Any]:
    reason = "Infeasible" if infeasible else "Deferred"
    return {
        "containerStatuses": [
            {
                "name": "main",
                "allocatedResources": {"cpu": allocated},
                "resources": {"requests": {"cpu": used}},
            }
        ],
        "conditions": [{"type": "PodResizePending", "status": "True", "reason": reason}],
    }


@pytest.mark.parametrize(
    ("status", "cpu"),
    [
        (_status("2", "2"), 2000),
        (_status("3", "2"), 3000),
        (_status("2", "3"), 3000),
        (_status("1", "1"), 2000),
        (_status("1", "1", infeasible=True), 1000),
    ],
)
def test_a_resize_counts_with_the_larger_size_until_it_is_done(
    status: dict[str, Any], cpu: int
) -> None:
    assert _needs({"containers": [_container(cpu="2")]}, status).cpu == cpu


# Constraints -------------------------------------------------------------------------------------


def test_the_node_selector_is_in_the_order_of_its_labels() -> None:
    needs = _needs({"nodeSelector": {"zone": "a", "gpu": "h200"}})
    assert needs.node_selector == (("gpu", "h200"), ("zone", "a"))


def _term(key: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": "In", "values": list(values)}]}


def _node_affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": list(terms)}}}


_ZONE_A = NodeSelectorTerm((NodeSelectorRequirement("zone", NodeSelectorOperator.IN, ("a",)),))


def test_required_node_affinity_is_kept() -> None:
    needs = _needs({"affinity": _node_affinity(_term("zone", "a"))})
    assert needs.affinity == NodeSelector((_ZONE_A,))


def test_preferred_node_affinity_is_not() -> None:
    preferred = [{"weight": 1, "preference": _term("zone", "a")}]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    assert _needs({"affinity": affinity}) == PodNeeds()


def test_an_affinity_of_a_newer_api_matches_no_node() -> None:
    term = {"matchExpressions": [{"key": "zone", "operator": "Resembles", "values": ["a"]}]}
    assert _needs({"affinity": _node_affinity(term)}).affinity == NodeSelector(())


def _pin(node: str) -> dict[str, Any]:
    return {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        ([_pin("n1")], None),
        ([{**_term("zone", "a"), **_pin("n1")}], NodeSelector((_ZONE_A,))),
        (
            [
                {
                    "matchFields": [
                        *_pin("n2")["matchFields"],
                        *_pin("n1")["matchFields"],
                    ]
                }
            ],
            NodeSelector(
                (
                    NodeSelectorTerm(
                        match_fields=(
                            NodeSelectorRequirement(
                                "metadata.name", NodeSelectorOperator.IN, ("n2",)
                            ),
                        )
                    ),
                )
            ),
        ),
    ],
)
def test_the_node_that_the_controller_chose_is_no_need(
    terms: list[dict[str, Any]], expected: NodeSelector | None
) -> None:
    body = _body({"affinity": _node_affinity(*terms)}, annotations={NODE_ANNOTATION: "n1"})
    assert needs_of(body).affinity == expected


def test_a_pin_of_somebody_else_is_one() -> None:
    needs = _needs({"affinity": _node_affinity(_pin("n1"))})
    assert needs.affinity is not None


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        ({"operator": "Exists"}, Toleration(operator=PodTolerationOperator.EXISTS)),
        ({"key": "k", "value": "v"}, Toleration("k", "v")),
        ({"key": "k", "operator": "Equal", "value": "v"}, Toleration("k", "v")),
        (
            {"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
            Toleration("k", operator=PodTolerationOperator.EXISTS, effect="NoExecute"),
        ),
        (
            {"key": "sla", "operator": "Gt", "value": "950"},
            Toleration("sla", "950", PodTolerationOperator.GREATER),
        ),
    ],
)
def test_tolerations_are_kept(toleration: dict[str, Any], expected: Toleration) -> None:
    assert _needs({"tolerations": [toleration]}).tolerations == (expected,)


def test_a_toleration_with_an_operator_of_a_newer_api_tolerates_nothing() -> None:
    assert _needs({"tolerations": [{"key": "k", "operator": "Like", "value": "v"}]}) == PodNeeds()


def test_host_ports_are_those_of_containers_that_keep_running() -> None:
    def ports(*found: dict[str, Any]) -> dict[str, Any]:
        return {"name": "c", "ports": list(found)}

    needs = _needs(
        {
            "initContainers": [
                ports({"containerPort": 1, "hostPort": 1}),
                {
                    **ports({"containerPort": 2, "hostPort": 2, "protocol": "UDP"}),
                    "restartPolicy": "Always",
                },
            ],
            "containers": [
                ports(
                    {"containerPort": 80},
                    {"containerPort": 81, "hostPort": 8081, "hostIP": "10.0.0.1"},
                )
            ],
        }
    )
    assert needs.host_ports == (("UDP", "0.0.0.0", 2), ("TCP", "10.0.0.1", 8081))


def _pod_affinity(kind: str = "podAffinity", **term: Any) -> PodNeeds:
    return _needs({"affinity": {kind: {_REQUIRED: [{"topologyKey": "zone", **term}]}}})


_APP: dict[str, Any] = {"labelSelector": {"matchLabels": {"app": "x"}}}


def _app_affinity(*, anti: bool = False) -> tuple[PodAffinity, ...]:
    return (PodAffinity("zone", PodSelection(with_labels({"app": "x"}), ("team",)), anti),)


def test_required_pod_affinity_is_kept() -> None:
    assert _pod_affinity(**_APP).pod_affinity == _app_affinity()


def test_required_pod_anti_affinity_is_kept() -> None:
    assert _pod_affinity("podAntiAffinity", **_APP).pod_affinity == _app_affinity(anti=True)


@pytest.mark.parametrize(
    "term",
    [
        {
            "labelSelector": {
                "matchExpressions": [{"key": "app", "operator": "In", "values": ["x"]}]
            }
        },
        {**_APP, "namespaces": ["team"]},
        {**_APP, "namespaces": []},
    ],
)
def test_pod_affinity_that_says_the_same_in_other_words_is_kept(term: dict[str, Any]) -> None:
    assert _pod_affinity(**term).pod_affinity == _app_affinity()


@pytest.mark.parametrize(
    ("term", "selection"),
    [
        ({}, PodSelection(None, ("team",))),
        ({"labelSelector": {}}, PodSelection(LabelSelector(), ("team",))),
        (
            {**_APP, "namespaces": ["team", "other"]},
            PodSelection(with_labels({"app": "x"}), ("other", "team")),
        ),
        (
            {**_APP, "namespaceSelector": {}},
            PodSelection(with_labels({"app": "x"}), (), LabelSelector()),
        ),
        (
            {**_APP, "namespaces": ["a"], "namespaceSelector": {"matchLabels": {"b": "c"}}},
            PodSelection(with_labels({"app": "x"}), ("a",), with_labels({"b": "c"})),
        ),
    ],
)
def test_terms_of_pod_affinity_mean_pods_of_namespaces(
    term: dict[str, Any], selection: PodSelection
) -> None:
    assert _pod_affinity(**term).pod_affinity == (PodAffinity("zone", selection, anti=False),)


def test_expressions_of_all_operators_are_kept() -> None:
    expressions = [
        {"key": "a", "operator": "In", "values": ["y", "x"]},
        {"key": "b", "operator": "NotIn", "values": ["z"]},
        {"key": "c", "operator": "Exists"},
        {"key": "d", "operator": "DoesNotExist"},
    ]
    (term,) = _pod_affinity(labelSelector={"matchExpressions": expressions}).pod_affinity
    assert term.selection.selector is not None
    assert [
        (each.key, each.operator, each.values) for each in term.selection.selector.requirements
    ] == [
        ("a", "In", ("x", "y")),
        ("b", "NotIn", ("z",)),
        ("c", "Exists", ()),
        ("d", "DoesNotExist", ()),
    ]


@pytest.mark.parametrize(
    "selector",
    [
        {"matchExpressions": [{"key": "app", "operator": "Newer"}]},
        {"matchLabels": {str(index): "x" for index in range(65)}},
    ],
)
def test_terms_that_are_not_known_or_too_large_are_left_to_kube_scheduler(
    selector: dict[str, Any],
) -> None:
    assert _pod_affinity(labelSelector=selector).pod_affinity == ()


def test_of_many_terms_the_first_32_are_kept() -> None:
    terms = [
        {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": f"x{index}"}}}
        for index in range(16_000)
    ]
    needs = _needs({"affinity": {"podAntiAffinity": {_REQUIRED: terms}}})
    assert len(needs.pod_affinity) == 32


def test_a_bound_pod_without_a_queue_keeps_others_away() -> None:
    term = {"topologyKey": "zone", **_APP}
    affinity = {"podAntiAffinity": {_REQUIRED: [term]}, "podAffinity": {_REQUIRED: [term]}}
    needs = needs_of(_body({"affinity": affinity, "nodeName": "n"}, labels={}))
    assert needs == PodNeeds(pod_affinity=_app_affinity(anti=True))


def _spread(**constraint: Any) -> tuple[SpreadConstraint, ...]:
    known = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    return _needs({"topologySpreadConstraints": [{**known, **_APP, **constraint}]}).spread


def test_spread_constraints_that_must_hold_are_kept() -> None:
    selection = PodSelection(with_labels({"app": "x"}), ("team",))
    assert _spread() == (SpreadConstraint("zone", 1, selection),)
    policies = {"nodeAffinityPolicy": "Ignore", "nodeTaintsPolicy": "Honor"}
    assert _spread(minDomains=2, **policies) == (
        SpreadConstraint("zone", 1, selection, 2, honors_affinity=False, honors_taints=True),
    )


def test_spread_constraints_that_need_not_hold_are_left_out() -> None:
    assert _spread(whenUnsatisfiable="ScheduleAnyway") == ()


def test_labels_of_the_pod_that_a_spread_constraint_names_are_required() -> None:
    [constraint] = _spread(matchLabelKeys=[QUEUE_LABEL, "absent"])
    expected = with_labels({"app": "x", QUEUE_LABEL: "research"})
    assert constraint.selection.selector == expected


# Sharing -----------------------------------------------------------------------------------------

_SPEC: dict[str, Any] = {
    "containers": [_container(cpu="2")],
    "nodeSelector": {"zone": "a"},
    "tolerations": [{"operator": "Exists"}],
}


def test_pods_of_one_template_share_their_needs() -> None:
    assert needs_of(_body(_SPEC, name="p-0")) is needs_of(_body(_SPEC, name="p-1"))


def test_a_bound_pod_of_others_has_what_it_uses_and_no_constraints() -> None:
    body = _body({**_SPEC, "nodeName": "n1"}, labels={})
    assert needs_of(body) == PodNeeds(cpu=2000)


def test_a_bound_pod_of_a_queue_has_its_constraints_since_it_may_move() -> None:
    assert needs_of(_body({**_SPEC, "nodeName": "n1"})) == _needs(_SPEC)


def test_very_long_needs_are_read_too() -> None:
    spec = {"affinity": _node_affinity(_term("zone", *(f"zone-{n}" for n in range(10_000))))}
    affinity = _needs(spec).affinity
    assert affinity is not None
    assert len(affinity.node_selector_terms[0].match_expressions[0].values) == 10_000


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeSelector": {f"label-{n}": "" for n in range(50_000)}},
        {"tolerations": [{"key": f"key-{n}", "operator": "Exists"} for n in range(50_000)]},
        {"affinity": _node_affinity(*(_term("zone", "a") for _ in range(50_000)))},
    ],
)
def test_a_pod_that_names_nodes_at_huge_length_fits_on_none(spec: dict[str, Any]) -> None:
    needs = _needs(spec)
    assert needs.affinity == NodeSelector(())
    assert not needs.node_selector
    assert not needs.tolerations


def test_of_huge_numbers_of_extended_resources_some_count() -> None:
    container = _container(**{f"example.com/{n}": "1" for n in range(10_000)})
    assert len(_needs({"containers": [container]}).extended) == 64
