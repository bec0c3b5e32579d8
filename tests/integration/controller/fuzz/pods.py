"""Specs and metadata of pods as a hostile tenant writes them."""

from random import Random
from typing import Final

from carina_dra.kube.body import Body
from controller.names import (
    EXPIRES_ANNOTATION,
    GROUP,
    MIN_COUNT_ANNOTATION,
    PREEMPTIBLE_ANNOTATION,
    RUN_TIME_ANNOTATION,
    STARTED_WITH_ANNOTATION,
)

_ANNOTATIONS: Final = (
    MIN_COUNT_ANNOTATION,
    PREEMPTIBLE_ANNOTATION,
    RUN_TIME_ANNOTATION,
    STARTED_WITH_ANNOTATION,
    EXPIRES_ANNOTATION,
    f"{GROUP}/fence",
    f"{GROUP}/evict",
    "leaderworkerset.sigs.k8s.io/size",
)
_ODD_TEXTS: Final = (
    *("", "0", "-1", "1", "3", "999999999", "99999999999999999999", "1e9", "true", "false", "NaN"),
    *("1m", "8h", "-5s", "10y", "٣", "\u202e", "a" * 10_000, '{"a": [', "null", "../..", "%2F"),
)
_ODD_LABELS: Final = (
    "batch.kubernetes.io/job-completion-index",
    "jobset.sigs.k8s.io/jobset-name",
    "jobset.sigs.k8s.io/replicatedjob-name",
    "leaderworkerset.sigs.k8s.io/name",
    "leaderworkerset.sigs.k8s.io/group-index",
    "training.kubeflow.org/job-name",
    "training.kubeflow.org/operator-name",
    "training.kubeflow.org/replica-type",
    "ray.io/cluster",
    "ray.io/group",
    "apps.kubernetes.io/pod-index",
    f"{GROUP}/pod-set",
    f"{GROUP}/pod-group",
)
_ODD_VALUES: Final = ("", "0", "1x", "7", "99999999999", "a", "A-b_c.d", "z" * 63)
_TERMS: Final = (1, 20, 500, 3_000, 12_000)
"""Pods with most of them are 1 MB long, and there are few of these."""
_TERM_WEIGHTS: Final = (40, 30, 20, 8, 2)
_YEAR: Final = 31_536_000


def spec(draw: Random, template: str | None, **more: object) -> Body:
    """The spec of a pod; `template` makes its claim."""
    container: Body = {
        "name": "main",
        "image": "none",
        "resources": {"requests": {"cpu": draw.choice(("1m", "100m", "1", "100m"))}},
    }
    body: Body = {
        "containers": [container],
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": draw.choice((0, 1, 30, 600, 86_400, _YEAR, 2**62)),
    }
    if template is not None:
        container["resources"]["claims"] = [{"name": "g"}]
        body["resourceClaims"] = [{"name": "g", "resourceClaimTemplateName": template}]
    return body | more


def annotations(draw: Random) -> dict[str, str]:
    """Values that mean nothing, and lies about run times."""
    chosen: dict[str, str] = {}
    if draw.random() < 0.3:
        chosen[RUN_TIME_ANNOTATION] = draw.choice(("1s", "1m", "24h"))
    if draw.random() < 0.3:
        chosen[PREEMPTIBLE_ANNOTATION] = "false"
    if draw.random() < 0.15:
        for name in draw.sample(_ANNOTATIONS, draw.randint(1, 4)):
            chosen[name] = draw.choice(_ODD_TEXTS)
    return chosen


def labels(draw: Random) -> dict[str, str]:
    """Labels by which pods belong to owners that they do not have."""
    if draw.random() < 0.8:
        return {}
    return {name: draw.choice(_ODD_VALUES) for name in draw.sample(_ODD_LABELS, 3)}


def owners(draw: Random) -> list[Body]:
    """An owner that does not exist, and that the garbage collector misses at some time."""
    kinds = (
        ("batch/v1", "Job"),
        ("apps/v1", "ReplicaSet"),
        ("apps/v1", "StatefulSet"),
        ("jobset.x-k8s.io/v1alpha2", "JobSet"),
        ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"),
        ("ray.io/v1", "RayCluster"),
        ("x.example/v1", "Odd/Kind"),
        ("v1", "Pod"),
    )
    version, kind = draw.choice(kinds)
    name = draw.choice(("absent", "a/b", "a%2Fb", "-", "n" * 200))
    uid = f"{draw.getrandbits(128):032x}"
    return [{"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": True}]


def affinity(draw: Random) -> Body:
    """Up to thousands of required terms, over pods and over nodes."""
    terms = draw.choices(_TERMS, _TERM_WEIGHTS)[0]
    kind = draw.choice(("podAntiAffinity", "podAntiAffinity", "podAffinity"))
    body: Body = {kind: {_REQUIRED: [_term(draw, at) for at in range(terms)]}}
    if draw.random() < 0.3:
        values = [f"n{at}" for at in range(draw.choice((1, 100, 2_000)))]
        expression = {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": values}
        node_terms = [{"matchExpressions": [expression]}] * draw.choice((1, 10))
        body["nodeAffinity"] = {_REQUIRED: {"nodeSelectorTerms": node_terms}}
    return body


_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def _term(draw: Random, index: int) -> Body:
    term: Body = {
        "topologyKey": draw.choice(("kubernetes.io/hostname", "absent.example/zone")),
        "labelSelector": {"matchLabels": {f"k{index % 50}": f"v{index}"}},
    }
    match draw.randint(0, 9):
        case 0:
            term["namespaceSelector"] = {}
        case 1:
            term["labelSelector"] = {
                "matchExpressions": [
                    {
                        "key": "k",
                        "operator": draw.choice(("In", "NotIn")),
                        "values": ["a", "b"],
                    },
                    {"key": "queue", "operator": "DoesNotExist"},
                ]
            }
        case 2:
            term["namespaces"] = ["default", f"absent-{index}"]
        case 3:
            term["matchLabelKeys"] = [f"m{index}"]
        case _:
            pass
    return term


def spread(draw: Random) -> list[Body]:
    """Constraints over topologies, some of which no node has."""
    return [
        {
            "maxSkew": draw.choice((1, 5, 2**31 - 1)),
            "topologyKey": "kubernetes.io/hostname" if at == 0 else f"absent.example/t{at}",
            "whenUnsatisfiable": draw.choice(("DoNotSchedule", "ScheduleAnyway")),
            "labelSelector": {"matchLabels": {"s": str(at)}},
        }
        for at in range(draw.choice((1, 3, 100)))
    ]


def odd_needs(draw: Random) -> Body:
    """Members of a spec that change what it needs of a node."""
    return draw.choice(
        (
            {"tolerations": [{"operator": "Exists"}] * draw.choice((1, 1_000))},
            {"nodeSelector": {f"absent.example/l{at}": "x" for at in range(draw.choice((1, 500)))}},
            {"hostNetwork": False, "priorityClassName": "system-cluster-critical"},
            {"schedulingGates": [{"name": f"gate.example/g{at}"} for at in range(5)]},
            {"schedulerName": "absent"},
            {"topologySpreadConstraints": spread(draw)},
            {"affinity": affinity(draw)},
            {"affinity": affinity(draw)},
            {"overhead": {"cpu": "1E3"}},
            {"initContainers": [_init(draw, at) for at in range(draw.choice((1, 50)))]},
            {"activeDeadlineSeconds": draw.choice((1, 20))},
        )
    )


def _init(draw: Random, index: int) -> Body:
    amount = draw.choice(("1n", "1m", "0.1", "1E2", "1Ei", "1000", "9223372036854775807"))
    body: Body = {
        "name": f"i{index}",
        "image": "none",
        "resources": {"requests": {draw.choice(("cpu", "memory", "ephemeral-storage")): amount}},
    }
    if draw.random() < 0.5:
        body["restartPolicy"] = "Always"
    return body


def missing_volume(draw: Random) -> Body:
    """A volume with a typing error in the name of its claim."""
    return draw.choice(
        (
            {"name": "data", "persistentVolumeClaim": {"claimName": "no-such-claim"}},
            {"name": "data", "configMap": {"name": "no-such-map"}},
            {
                "name": "data",
                "ephemeral": {
                    "volumeClaimTemplate": {
                        "spec": {
                            "accessModes": ["ReadWriteOnce"],
                            "storageClassName": "no-such-class",
                            "resources": {"requests": {"storage": "1Gi"}},
                        }
                    }
                },
            },
        )
    )
