"""`carina allocate`: shows the devices that claims would get, or why they would not.

Claims are allocated in their order; each leaves its devices out for the next. Nothing is written.
"""

import sys
import uuid
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Final

from carina_dra.allocator.errors import AllocationError
from carina_dra.allocator.node import Node
from carina_dra.allocator.preference import Policy
from carina_dra.cli.command import Command
from carina_dra.cli.output import OutputFormat, add_output_argument, render
from carina_dra.kube import configuration
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
from carina_dra.kube.collector_pause import collector_paused
from carina_dra.kube.connection import ConfigurationError
from carina_dra.kube.errors import ApiError, PathNotFound
from carina_dra.manifests.manifest import CLUSTER, ManifestObjects, read_files
from carina_dra.placement.choice.placer import PlacedClaims, PlacementRequest, Placer, Unplaceable
from carina_dra.placement.cluster.cluster import Cluster
from carina_dra.placement.cluster.feed import Feed, WatchedObject
from carina_dra.resource import (
    Allocation,
    OnNode,
    ResourceClaim,
    ResourceClaimTemplate,
    encode,
)

__all__ = ["COMMAND"]

ALL_ALLOCATED: Final = 0
INVALID_INPUT: Final = 2
NOT_ALL_ALLOCATED: Final = 3

_EXIT_CODES: Final = f"""\
exit codes:
  {ALL_ALLOCATED}  every claim would get its devices
  {INVALID_INPUT}  an argument or a file is not valid, or the cluster cannot be read
  {NOT_ALL_ALLOCATED}  at least one claim would get no devices
"""
_MAX_STEPS: Final = 1_000_000
_EXPLAINED_GROUPS: Final = 10
"""How many groups of nodes `--explain` reports."""


@dataclass(frozen=True, slots=True)
class AllocatedClaim:
    """A claim that would get devices."""

    claim: str
    node: str
    allocation: Allocation


@dataclass(frozen=True, slots=True)
class UnallocatedClaim:
    """A claim that would get no devices."""

    claim: str
    reason: str
    explanation: tuple[str, ...]


def run(arguments: Namespace) -> int:
    """Prints the result for each claim; errors of the input go to standard error."""
    try:
        policy = Policy.parse(arguments.policy)
        with collector_paused(freeze=True):
            standard_input = None if sys.stdin is None else sys.stdin.buffer
            objects = read_files(arguments.file, standard_input)
            if arguments.cluster:
                _read_cluster(objects)
        _note_ignored(objects)
        claims = list(allocate_claims(objects, policy, arguments.node, explained=arguments.explain))
    except ValueError as error:
        return _fail(str(error))
    except RecursionError:
        return _fail("an object is nested too deeply")
    except (ApiError, ConfigurationError) as error:
        return _fail(f"cannot read the cluster: {error}")
    output = OutputFormat(arguments.output)
    print(render(output, document=_document(claims), table=_table(claims)))
    return (
        NOT_ALL_ALLOCATED
        if any(isinstance(claim, UnallocatedClaim) for claim in claims)
        else ALL_ALLOCATED
    )


def _note_ignored(objects: ManifestObjects) -> None:
    if objects.ignored:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(objects.ignored.items()))
        _print_error(f"ignored objects of other kinds: {kinds}")


def _fail(problem: str) -> int:
    _print_error(problem)
    return INVALID_INPUT


def _print_error(text: str) -> None:
    """Prints one line to standard error; names in files may have any character."""
    line = "".join(
        character if character.isprintable() else ascii(character)[1:-1] for character in text
    )
    print(f"carina allocate: {line}", file=sys.stderr)


def allocate_claims(
    objects: ManifestObjects, policy: Policy, node: str | None, *, explained: bool
) -> Iterator[AllocatedClaim | UnallocatedClaim]:
    """The result for each claim without devices, on the given node or on the best of all.

    Raises:
        ValueError: there is no such claim, or no such node.
    """
    pending = list(_pending(objects))
    if not pending:
        raise ValueError("there is no ResourceClaim without devices; give one with -f")
    attempt = _Attempt(objects, policy, node, explained=explained)
    for claim in pending:
        yield attempt.allocate(claim)


def _pending(objects: ManifestObjects) -> Iterator[ResourceClaim]:
    """The claims without an allocation, and a claim of each template, in their order.

    The claim of a template has the template's name, unless another claim has it.
    """
    taken = {claim.key for claim in objects.claims if isinstance(claim, ResourceClaim)}
    for written in objects.claims:
        match written:
            case ResourceClaim():
                if written.status.allocation is None:
                    yield written
            case ResourceClaimTemplate(metadata=metadata, spec=template):
                while metadata.key in taken:
                    metadata = replace(metadata, name=f"{metadata.name}-from-template")
                yield ResourceClaim(metadata=metadata, spec=template.spec)


class _Attempt:
    """Allocates claims one after the other, on one node or (None) on the best of all."""

    def __init__(
        self, objects: ManifestObjects, policy: Policy, node: str | None, *, explained: bool
    ) -> None:
        self._explained = explained
        self._cluster = Cluster()
        self._feed = Feed(self._cluster)
        _put_all(self._feed, objects)
        nodes = self._cluster.nodes
        if node is not None and node not in nodes:
            known = ", ".join(sorted(nodes)) or "none"
            raise ValueError(f"--node {node}: there is no such node; the nodes are: {known}")
        self._nodes = None if node is None else (node,)
        self._placer = Placer(
            self._cluster, policy, new_share_id=lambda: str(uuid.uuid4()), max_steps=_MAX_STEPS
        )

    def allocate(self, claim: ResourceClaim) -> AllocatedClaim | UnallocatedClaim:
        """The devices of one claim, which are in use from then on."""
        try:
            request = PlacementRequest.of([claim], self._feed.classes, self._cluster.features)
        except AllocationError as error:  # of the claim: no node is to be explained
            return UnallocatedClaim(claim.key, str(error), ())
        try:
            placement = self._placer.place(request, self._nodes)
        except AllocationError as error:
            return UnallocatedClaim(claim.key, str(error), self._explanation(request))
        match placement:
            case PlacedClaims(node=node, allocated=allocated):
                [allocation] = allocated.allocations
                self._cluster.allocate(claim.key, allocation)
                return AllocatedClaim(claim.key, node, allocation)
            case Unplaceable():
                reason = self._reason(placement)
                return UnallocatedClaim(claim.key, reason, self._explanation(request))

    def _reason(self, unplaceable: Unplaceable) -> str:
        if self._nodes is not None:
            reason = f"node {self._nodes[0]} does not have the devices"
        elif not self._cluster.nodes:
            return "there is no node"
        else:
            reason = f"no node has the devices; nodes searched: {len(self._cluster.nodes)}"
        if unplaceable.undecided:
            reason += f"; nodes where the search stopped at its limit: {unplaceable.undecided}"
        if unplaceable.failed:
            reason += f"; {'; '.join(unplaceable.failed)}"
        return reason

    def _explanation(self, request: PlacementRequest) -> tuple[str, ...]:
        lines: list[str] = []
        if self._explained:
            try:
                for line in self._explain(request):
                    lines.append(line)  # noqa: PERF402 - those before an error are kept
            except AllocationError as error:
                lines.append(f"cannot be explained: {error}")
        return tuple(lines)

    def _explain(self, request: PlacementRequest) -> Iterator[str]:
        """The explanation for one node of each group with the same reasons."""
        groups = self._placer.reasons(request, self._nodes)
        for group in groups[:_EXPLAINED_GROUPS]:
            yield from group.explanation.lines()
            if len(group.nodes) > 1:
                others = len(group.nodes) - 1
                yield f"  same result on {others} more nodes, such as {group.nodes[1]}"
        if len(groups) > _EXPLAINED_GROUPS:
            yield (
                f"results for {len(groups) - _EXPLAINED_GROUPS} more groups of nodes are not "
                "shown; choose a node with --node"
            )


def _put_all(feed: Feed, objects: ManifestObjects) -> None:
    for node in objects.nodes:
        feed.put(Node.of(node))
    if not objects.nodes:
        # Slices without the Node objects: take the nodes that they name.
        for published in objects.slices:
            if isinstance(published.spec.nodes, OnNode):
                feed.put(Node(published.spec.nodes.node_name))
    claims = (claim for claim in objects.claims if isinstance(claim, ResourceClaim))
    for watched in chain[WatchedObject](objects.rules, objects.classes, objects.slices, claims):
        feed.put(watched)


def _read_cluster(objects: ManifestObjects) -> None:
    """Adds the objects of the kubeconfig's cluster; of its claims those with an allocation."""
    with Client(configuration.find(None)) as client:
        for resource in (NODES, DEVICE_CLASSES, RESOURCE_SLICES):
            _add(objects, resource, client.list(resource).items)
        with suppress(PathNotFound):  # Kubernetes 1.36 does not serve taint rules in this version
            _add(objects, DEVICE_TAINT_RULES, client.list(DEVICE_TAINT_RULES).items)
        claims = client.list(RESOURCE_CLAIMS).items
        allocated = [claim for claim in claims if (claim.get("status") or {}).get("allocation")]
        _add(objects, RESOURCE_CLAIMS, allocated)


def _add(objects: ManifestObjects, resource: ApiResource, bodies: Iterable[Body]) -> None:
    known = {"kind": resource.kind, "apiVersion": resource.api_version}  # absent in lists
    for body in bodies:
        objects.add(CLUSTER, {**known, **body}, strict=False)


def _document(claims: Sequence[AllocatedClaim | UnallocatedClaim]) -> dict[str, Any]:
    document: dict[str, Any] = {"allocated": [], "unallocated": []}
    for result in claims:
        match result:
            case AllocatedClaim(claim=claim, node=node, allocation=allocation):
                document["allocated"].append(
                    {"claim": claim, "node": node, "allocation": encode(allocation)}
                )
            case UnallocatedClaim(claim=claim, reason=reason, explanation=explanation):
                document["unallocated"].append(
                    {"claim": claim, "reason": reason, "explanation": list(explanation)}
                )
    return document


def _table(claims: Sequence[AllocatedClaim | UnallocatedClaim]) -> Iterator[str]:
    for result in claims:
        match result:
            case AllocatedClaim(claim=claim, node=node, allocation=allocation):
                yield f"{claim}: allocated on node {node}"
                for device in allocation.devices.results:
                    share = "".join(
                        f", {amount} of {name}" for name, amount in device.consumed_capacity.items()
                    )
                    admin = ", admin access" if device.admin_access else ""
                    where = f"{device.driver}/{device.pool}/{device.device}"
                    yield f"  {device.request}: {where}{share}{admin}"
            case UnallocatedClaim(claim=claim, reason=reason, explanation=explanation):
                yield f"{claim}: not allocated: {reason}"
                for line in explanation:
                    yield f"  {line}"


def _add_arguments(parser: ArgumentParser) -> None:
    parser.formatter_class = RawDescriptionHelpFormatter
    parser.epilog = _EXIT_CODES
    parser.add_argument(
        *("-f", "--file"),
        action="append",
        type=Path,
        default=[],
        metavar="FILE",
        help="read Nodes, ResourceSlices, DeviceClasses, DeviceTaintRules, ResourceClaims and "
        "ResourceClaimTemplates from this YAML or JSON file, or from standard input (-); unknown "
        "fields and kinds are errors, other kinds of objects are ignored; may be repeated",
    )
    parser.add_argument(
        "--cluster",
        action="store_true",
        help="read Nodes, ResourceSlices, DeviceClasses, DeviceTaintRules and allocated "
        "ResourceClaims from the cluster of the kubeconfig",
    )
    parser.add_argument("--node", metavar="NODE", help="allocate on this node only")
    parser.add_argument(
        "--explain",
        action="store_true",
        help="for a claim that gets no devices, also because of an error, count each pool's "
        "devices by the reason",
    )
    parser.add_argument(
        "--policy",
        default="binpack",
        metavar="POLICY",
        help="how to choose nodes and devices: binpack, spread, fragmentation, NODES/DEVICES such "
        "as spread/binpack, or upstream for the devices that kube-scheduler would choose "
        "[%(default)s]",
    )
    add_output_argument(parser)


COMMAND: Final = Command(
    add_arguments=_add_arguments,
    run=run,
)
