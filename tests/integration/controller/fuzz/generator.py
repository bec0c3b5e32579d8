"""What the hostile tenant writes: each step follows from the seed and its index alone.

The objects are such as the role `edit` may create in its own namespace. Most are accepted by the
API server. No step knows what became of the steps before it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final, TypeAlias

from carina_dra.kube.api_resource import (
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    ApiResource,
    Scope,
)
from carina_dra.kube.body import Body
from controller.engine.model.queue import QUEUE_LABEL
from controller.names import GROUP_LABEL, MIN_COUNT_ANNOTATION, POD_GROUPS, POD_SET_LABEL
from tests.integration.controller.fuzz import claims, pods

JOBS: Final = ApiResource("batch", "v1", "jobs", "Job", Scope.NAMESPACED)
REPLICA_SETS: Final = ApiResource("apps", "v1", "replicasets", "ReplicaSet", Scope.NAMESPACED)
BUDGETS: Final = ApiResource(
    "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", Scope.NAMESPACED
)


@dataclass(frozen=True, slots=True)
class Target:
    """Where the tenant writes."""

    namespace: str
    queues: tuple[str, ...]
    """The queues of the tenant."""
    foreign: tuple[str, ...]
    """Queues of others, and such as do not exist."""


@dataclass(frozen=True, slots=True)
class Create:
    """Objects that belong together, in the order in which they are created."""

    index: int
    recipe: str
    objects: tuple[tuple[ApiResource, Body], ...]
    made: int = 0
    """Objects at most that controllers make from them at any time."""


@dataclass(frozen=True, slots=True)
class Delete:
    """Takes away what an earlier step created, or the pods and claims that it led to."""

    index: int
    choice: float
    """Which of the objects that there are, from 0 to 1."""
    resource: ApiResource
    grace: int | None


Step: TypeAlias = Create | Delete
_DELETIONS: Final = 0.3
"""How many of the steps delete. The limit of objects that are alive leads to more deletions."""


def step(seed: int, index: int, target: Target) -> Step:
    """A step of a run."""
    draw = Random(f"{seed}:{index}")
    if draw.random() < _DELETIONS:
        return Delete(
            index,
            draw.random(),
            draw.choice(
                (PODS, PODS, RESOURCE_CLAIMS, RESOURCE_CLAIM_TEMPLATES, JOBS, POD_GROUPS, BUDGETS)
            ),
            draw.choice((None, None, 0, 1)),
        )
    recipe = draw.choices(tuple(_RECIPES), tuple(_RECIPES.values()))[0]
    return recipe(_Author(draw, index, target))


@dataclass(frozen=True, slots=True)
class _Author:
    """Writes the objects of one step."""

    draw: Random
    index: int
    target: Target

    def labels(self) -> dict[str, str]:
        """The labels of pods and claims; some name queues that are not the tenant's."""
        is_foreign = self.draw.random() < 0.05
        queues = self.target.foreign if is_foreign else self.target.queues
        return {QUEUE_LABEL: self.draw.choice(queues)}

    def template(self, spec: Body, labels: dict[str, str]) -> tuple[ApiResource, Body]:
        metadata = {"labels": labels} if self.draw.random() < 0.95 else {}
        return self.object(RESOURCE_CLAIM_TEMPLATES, "t", spec={"metadata": metadata, "spec": spec})

    def pod(
        self,
        part: object,
        spec: Body,
        labels: dict[str, str],
        annotations: dict[str, str],
        **metadata: object,
    ) -> tuple[ApiResource, Body]:
        resource, body = self.object(PODS, f"p{part}", spec=spec)
        body["metadata"] |= {"labels": labels, "annotations": annotations, **metadata}
        return resource, body

    def object(self, resource: ApiResource, part: str, **more: object) -> tuple[ApiResource, Body]:
        return resource, {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": self.name(part), "namespace": self.target.namespace},
            **more,
        }

    def name(self, part: str) -> str:
        return f"f{self.index}-{part}"

    def create(
        self, recipe: str, *objects: tuple[ApiResource, Body], made: int | None = None
    ) -> Create:
        pods_made = sum(1 for resource, _ in objects if resource is PODS)
        return Create(self.index, recipe, objects, pods_made if made is None else made)


_Recipe: TypeAlias = Callable[[_Author], Create]


def _worker(author: _Author) -> Create:
    """A pod that starts if there is room: it fills the queue, and borrows."""
    labels = author.labels()
    template = author.template(claims.plain(author.draw), labels)
    spec = pods.spec(author.draw, author.name("t"))
    pod = author.pod("", spec, labels, pods.annotations(author.draw))
    return author.create("worker", template, pod)


def _pod_of(author: _Author, recipe: str, claim: Body, **spec: object) -> Create:
    draw, labels = author.draw, author.labels()
    template = author.template(claim, labels)
    metadata: dict[str, object] = {}
    if draw.random() < 0.1:
        metadata["ownerReferences"] = pods.owners(draw)
    if draw.random() < 0.05:
        metadata["finalizers"] = ["fuzz.example/held"]
    pod = author.pod(
        "",
        pods.spec(draw, author.name("t"), **spec),
        labels | pods.labels(draw),
        pods.annotations(draw),
        **metadata,
    )
    return author.create(recipe, template, pod)


def _costly(author: _Author) -> Create:
    return _pod_of(author, "costly selectors", claims.costly(author.draw))


def _contradicting(author: _Author) -> Create:
    return _pod_of(author, "contradicting constraints", claims.contradicting(author.draw))


def _wild(author: _Author) -> Create:
    return _pod_of(author, "wild claim", claims.wild(author.draw))


def _odd_pod(author: _Author) -> Create:
    more = pods.odd_needs(author.draw)
    return _pod_of(author, "odd needs", claims.plain(author.draw), **more)


def _gang(author: _Author) -> Create:
    """A gang, most of which can never start."""
    draw, labels = author.draw, author.labels()
    number = draw.choice((2, 5, 20))
    spec: Body
    match draw.randint(0, 3):
        case 0:
            spec = {"minCount": draw.choice((number, number + 1, 100_000))}
        case 1:
            count = draw.choice((2, 64))
            parts = [{"name": f"s{at}", "minCount": draw.choice((0, 1))} for at in range(count)]
            spec = {"subGroups": parts, "minSubGroups": draw.randint(1, count)}
        case 2:
            spec = {"minCount": number, "preemptible": False, "runTime": draw.choice(("1s", "1m"))}
        case _:
            topology = {"topology": "absent", "requiredLevel": "absent.example/rack"}
            spec = {"minCount": number, "topologyConstraint": topology}
    spec |= draw.choice(({}, {"stalenessGracePeriod": "1s"}, {"preemptionDelay": "1s"}))
    labels |= {GROUP_LABEL: author.name("g")}
    if "subGroups" in spec:
        labels[POD_SET_LABEL] = "s0"
    members = [
        author.pod(at, pods.spec(draw, author.name("t")), labels, pods.annotations(draw))
        for at in range(number)
    ]
    template = author.template(draw.choice((claims.plain, claims.wild))(draw), labels)
    group = author.object(POD_GROUPS, "g", spec=spec)
    return author.create("gang", group, template, *members)


def _job(author: _Author) -> Create:
    """A Job; each third one can never run, since a volume's name is misspelt."""
    draw, labels, number = author.draw, author.labels(), author.draw.choice((1, 4, 16))
    spec = pods.spec(draw, author.name("t"))
    annotations = pods.annotations(draw)
    if draw.random() < 0.3:
        spec["volumes"] = [pods.missing_volume(draw)]
    if draw.random() < 0.3:
        annotations[MIN_COUNT_ANNOTATION] = str(draw.choice((number, number + 1)))
    body = {
        "parallelism": number,
        "completions": number,
        "backoffLimit": draw.choice((0, 6, 1000)),
        "template": {"metadata": {"labels": labels, "annotations": annotations}, "spec": spec},
    }
    template = author.template(draw.choice((claims.plain, claims.costly))(draw), labels)
    return author.create("job", template, author.object(JOBS, "j", spec=body), made=2 * number)


def _replica_set(author: _Author) -> Create:
    """Pods that kube-scheduler cannot place, and that are made again whenever they are gone."""
    draw, number = author.draw, author.draw.choice((1, 5, 20))
    labels = author.labels() | {"app": author.name("r")}
    spec = pods.spec(draw, author.name("t"), restartPolicy="Always")
    spec["terminationGracePeriodSeconds"] = 0
    spec["volumes"] = [pods.missing_volume(draw)]
    body = {
        "replicas": number,
        "selector": {"matchLabels": {"app": author.name("r")}},
        "template": {"metadata": {"labels": labels}, "spec": spec},
    }
    template = author.template(claims.plain(draw), labels)
    return author.create(
        "misspelt volume", template, author.object(REPLICA_SETS, "r", spec=body), made=2 * number
    )


def _budget(author: _Author) -> Create:
    """Forbids to evict anything."""
    amount = author.draw.choice(({"maxUnavailable": 0}, {"minAvailable": "100%"}))
    selector = author.draw.choice(
        ({}, {"matchExpressions": [{"key": "x", "operator": "NotIn", "values": ["y"]}]})
    )
    return author.create(
        "budget", author.object(BUDGETS, "b", spec={"selector": selector, **amount})
    )


def _claim(author: _Author) -> Create:
    """A claim by itself, which several pods may share."""
    draw, labels = author.draw, author.labels()
    kind = draw.choice((claims.plain, claims.costly, claims.contradicting, claims.wild))
    resource, claim = author.object(RESOURCE_CLAIMS, "c", spec=kind(draw))
    claim["metadata"] |= {"labels": labels, "annotations": pods.annotations(draw)}
    spec = pods.spec(draw, None)
    spec["resourceClaims"] = [{"name": "g", "resourceClaimName": author.name("c")}]
    spec["containers"][0]["resources"]["claims"] = [{"name": "g"}]
    users = draw.choice((0, 0, 1, 8))
    sharing = [author.pod(at, spec, labels, {}) for at in range(users)]
    return author.create("claim", (resource, claim), *sharing, made=0)


def _large(author: _Author) -> Create:
    """A pod as large as the API server takes it, whose labels and annotations nobody needs."""
    noise = {f"noise.example/{at}": "x" * 1_000 for at in range(author.draw.choice((10, 200)))}
    created = _pod_of(author, "large", claims.plain(author.draw))
    for _, body in created.objects:
        body["metadata"]["annotations"] = body["metadata"].get("annotations", {}) | noise
    return created


_RECIPES: Final[dict[_Recipe, int]] = {
    _worker: 30,
    _costly: 10,
    _contradicting: 8,
    _wild: 10,
    _odd_pod: 10,
    _gang: 8,
    _job: 8,
    _replica_set: 4,
    _budget: 2,
    _claim: 8,
    _large: 2,
}
"""How often each is written."""
