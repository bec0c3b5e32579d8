"""`carina allocate`: what claims would be given, and why not.

Claims are taken one after the other, each beside what those before it were given. Nothing is
changed anywhere.
"""

import json
import sys
import uuid
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from carina_dra.allocator.errors import AllocationError
from carina_dra.allocator.explanation import explain
from carina_dra.allocator.features import Features
from carina_dra.allocator.node import Node
from carina_dra.allocator.preference import Policy
from carina_dra.cli.command import Command
from carina_dra.cli.manifest import Manifest, ManifestError, read_files
from carina_dra.kube import connection
from carina_dra.kube.api_resource import (
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    NODES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    ApiResource,
)
from carina_dra.kube.body import Body
from carina_dra.kube.client import Client
from carina_dra.kube.errors import ApiError, NotFound
from carina_dra.placement.cluster import Cluster
from carina_dra.placement.placer import Placed, PlacementRequest, Placer, Unplaceable
from carina_dra.resource import Allocation, DeviceClass, OnNode, ResourceClaim, encode

__all__ = ["COMMAND"]

ALL: Final = 0
WRONG: Final = 2
NOT_ALL: Final = 3

_EXIT_CODES: Final = f"""\
exit codes:
  {ALL}  every claim would get its devices
  {WRONG}  something that was given is wrong
  {NOT_ALL}  a claim would get none
"""
_MAX_STEPS: Final = 1_000_000
_EXPLAINED_NODES: Final = 10
"""Of so many kinds of nodes it is told why they have nothing."""


@dataclass(frozen=True, slots=True)
class Given:
    """A claim that would get devices."""

    claim: str
    node: str
    allocation: Allocation


@dataclass(frozen=True, slots=True)
class Refused:
    """A claim that would get none."""

    claim: str
    reason: str
    explanation: tuple[str, ...]


def run(arguments: Namespace) -> int:
    """Prints what would be given, and says on standard error what is wrong with the input."""
    try:
        policy = Policy.parse(arguments.policy)
        manifest = read_files(arguments.file, sys.stdin)
        if arguments.cluster:
            _read_cluster(manifest)
        results = list(answers(manifest, policy, arguments.node, explained=arguments.explain))
    except (ManifestError, ValueError) as error:
        print(f"carina allocate: {error}", file=sys.stderr)
        return WRONG
    except (ApiError, connection.ConfigurationError) as error:
        print(f"carina allocate: the cluster cannot be read: {error}", file=sys.stderr)
        return WRONG
    print(_FORMATS[arguments.output](results))
    return NOT_ALL if any(isinstance(each, Refused) for each in results) else ALL


def answers(
    manifest: Manifest, policy: Policy, node: str | None, *, explained: bool
) -> Iterator[Given | Refused]:
    """What each claim that has no devices yet would get, on any node or on this one.

    Raises:
        ValueError: there is no claim, or no such node.
    """
    if all(claim.status.allocation for claim in manifest.claims):
        raise ValueError("there is no ResourceClaim without devices; give one with -f")
    cluster = _cluster(manifest)
    if node is not None and node not in cluster.nodes:
        known = ", ".join(sorted(cluster.nodes)) or "none"
        raise ValueError(f"--node {node}: there is no such node; there are {known}")
    classes = {each.metadata.name: each for each in manifest.classes}
    placer = Placer(cluster, policy, new_share_id=lambda: str(uuid.uuid4()), max_steps=_MAX_STEPS)
    for claim in manifest.claims:
        if claim.status.allocation is None:
            answer = _answer(claim, classes, placer, cluster, node, explained=explained)
            if isinstance(answer, Given):
                cluster.allocate(claim.key, answer.allocation)
            yield answer


def _answer(
    claim: ResourceClaim,
    classes: Mapping[str, DeviceClass],
    placer: Placer,
    cluster: Cluster,
    node: str | None,
    *,
    explained: bool,
) -> Given | Refused:
    nodes = None if node is None else (node,)
    try:
        request = PlacementRequest.of([claim], classes, cluster.features)
        placement = placer.place(request, nodes)
    except AllocationError as error:
        return Refused(claim.key, str(error), ())
    match placement:
        case Placed(node=name, allocated=allocated):
            return Given(claim.key, name, allocated.allocations[0])
        case Unplaceable():
            told = tuple(_explained(request, cluster, nodes)) if explained else ()
            return Refused(claim.key, _reason(placement, cluster, nodes), told)


def _reason(unplaceable: Unplaceable, cluster: Cluster, nodes: Sequence[str] | None) -> str:
    count = len(cluster.nodes if nodes is None else nodes)
    if not count:
        return "there is no node"
    where = f"none of {count} nodes has" if nodes is None else f"node {nodes[0]} does not have"
    reason = f"{where} the devices"
    if unplaceable.undecided:
        reason += f"; on {unplaceable.undecided} the search was cut short"
    if unplaceable.invalid:
        reason += f"; {'; '.join(unplaceable.invalid)}"
    return reason


def _explained(
    request: PlacementRequest, cluster: Cluster, nodes: Sequence[str] | None
) -> Iterator[str]:
    """Why not, once for nodes that are alike."""
    alike = [
        members
        for of_shape in cluster.by_shape().values()
        if (members := sorted(name for name in of_shape if nodes is None or name in nodes))
    ]
    for members in sorted(alike)[:_EXPLAINED_NODES]:
        yield from explain(request.claims, cluster.state(members[0])).lines()
        if len(members) > 1:
            yield f"  and so on {len(members) - 1} more, such as {members[1]}"
    if len(alike) > _EXPLAINED_NODES:
        yield f"and {len(alike) - _EXPLAINED_NODES} more kinds of nodes; see one with --node"


def _cluster(manifest: Manifest) -> Cluster:
    cluster = Cluster(Features())
    for node in manifest.nodes:
        cluster.put_node(Node.of(node))
    if not manifest.nodes:
        # Slices alone say where their devices are.
        for each in manifest.slices:
            if isinstance(each.spec.nodes, OnNode):
                cluster.put_node(Node(each.spec.nodes.node_name))
    for rule in manifest.rules:
        cluster.put_rule(rule)
    for published in manifest.slices:
        cluster.put_slice(published)
    for claim in manifest.claims:
        cluster.put_claim(claim)
    return cluster


def _read_cluster(manifest: Manifest) -> None:
    """Adds the cluster's objects: of its claims those that have devices."""
    with Client(connection.find(None)) as client:
        for resource in (NODES, DEVICE_CLASSES, RESOURCE_SLICES):
            _add(manifest, resource, client.list(resource).items)
        with suppress(NotFound):  # Kubernetes 1.36 has no taint rules in this version
            _add(manifest, DEVICE_TAINT_RULES, client.list(DEVICE_TAINT_RULES).items)
        claims = client.list(RESOURCE_CLAIMS).items
        allocated = [each for each in claims if (each.get("status") or {}).get("allocation")]
        _add(manifest, RESOURCE_CLAIMS, allocated)


def _add(manifest: Manifest, resource: ApiResource, bodies: Iterable[Body]) -> None:
    known = {"kind": resource.kind, "apiVersion": resource.api_version}
    for body in bodies:
        manifest.add(f"cluster, {resource.kind}", {**known, **body})


def as_json(results: Sequence[Given | Refused]) -> str:
    """Gives the results for programs."""
    return json.dumps(_document(results), indent=2)


def as_yaml(results: Sequence[Given | Refused]) -> str:
    """Gives the same as YAML."""
    return yaml.safe_dump(_document(results), sort_keys=False).rstrip()


def as_table(results: Sequence[Given | Refused]) -> str:
    """Gives the results for people."""
    return "\n".join(line for each in results for line in _lines(each))


def _document(results: Sequence[Given | Refused]) -> dict[str, Any]:
    document: dict[str, Any] = {"allocated": [], "unallocated": []}
    for each in results:
        match each:
            case Given(claim=claim, node=node, allocation=allocation):
                document["allocated"].append(
                    {"claim": claim, "node": node, "allocation": encode(allocation)}
                )
            case Refused(claim=claim, reason=reason, explanation=explanation):
                document["unallocated"].append(
                    {"claim": claim, "reason": reason, "explanation": list(explanation)}
                )
    return document


def _lines(result: Given | Refused) -> Iterator[str]:
    match result:
        case Given(claim=claim, node=node, allocation=allocation):
            yield f"{claim}: on node {node}"
            for each in allocation.devices.results:
                share = "".join(
                    f", {amount} of {name}" for name, amount in each.consumed_capacity.items()
                )
                admin = ", admin access" if each.admin_access else ""
                yield f"  {each.request}: {each.driver}/{each.pool}/{each.device}{share}{admin}"
        case Refused(claim=claim, reason=reason, explanation=explanation):
            yield f"{claim}: nothing: {reason}"
            for line in explanation:
                yield f"  {line}"


_FORMATS: Final = {"table": as_table, "json": as_json, "yaml": as_yaml}


def _add_arguments(parser: ArgumentParser) -> None:
    parser.formatter_class = RawDescriptionHelpFormatter
    parser.epilog = _EXIT_CODES
    parser.add_argument(
        *("-f", "--file"),
        action="append",
        type=Path,
        default=[],
        metavar="FILE",
        help="nodes, slices, classes, claims and their templates in YAML or JSON; - reads them "
        "from standard input",
    )
    parser.add_argument(
        "--cluster",
        action="store_true",
        help="nodes, slices, classes and what is allocated from the cluster of the kubeconfig",
    )
    parser.add_argument("--node", metavar="NODE", help="only what this node has")
    parser.add_argument(
        "--explain", action="store_true", help="why a claim gets nothing, device by device"
    )
    parser.add_argument(
        "--policy",
        default="binpack",
        metavar="POLICY",
        help="binpack, spread, NODES/DEVICES such as spread/binpack, or upstream for the devices "
        "that kube-scheduler would take [%(default)s]",
    )
    parser.add_argument(
        *("-o", "--output"),
        choices=tuple(_FORMATS),
        default="table",
        help="how it is written [%(default)s]",
    )


COMMAND: Final = Command(
    summary="shows which devices claims would get, and why they would not",
    add_arguments=_add_arguments,
    run=run,
)
