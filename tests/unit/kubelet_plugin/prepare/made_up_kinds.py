"""Kinds of node resources that are not Carina's, to show that preparing does not depend on kinds.

They are like what later kinds will be. A `mode` of a GPU is shared by all claims on it. A `part` is
one claim's share of a GPU: it takes two steps to make, and has a serial number only when it exists.
A `file` is a claim's and holds the serial numbers of its parts. Only parts survive a reboot.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from kubelet_plugin.claims.claim import ClaimReference, NodeClaim
from kubelet_plugin.devices.name import gpu_name, parse_name
from kubelet_plugin.prepare.resource import Identity


@dataclass(frozen=True, slots=True)
class Mode:
    gpu: str

    @property
    def identity(self) -> Identity:
        return Identity("mode", self.gpu, self.gpu)


@dataclass(frozen=True, slots=True)
class Part:
    gpu: str
    share: str

    @property
    def identity(self) -> Identity:
        return Identity("part", f"{self.gpu}/{self.share}", self.gpu)


@dataclass(frozen=True, slots=True)
class File:
    claim: ClaimReference
    parts: tuple[Part, ...]

    @property
    def identity(self) -> Identity:
        return Identity("file", self.claim.uid)


Resource: TypeAlias = Mode | Part | File
Serial: TypeAlias = int | None


def needed(claim: NodeClaim) -> tuple[Resource, ...]:
    parts = tuple(
        Part(gpu_name(parse_name(device.device)), device.share_id or "all")
        for device in claim.devices
    )
    return (*(Mode(part.gpu) for part in parts), *parts, File(claim.reference, parts))


def identities(claim: NodeClaim) -> frozenset[Identity]:
    return frozenset(resource.identity for resource in needed(claim))


def wanted(claims: Sequence[NodeClaim]) -> Mapping[Identity, Resource]:
    return {resource.identity: resource for claim in claims for resource in needed(claim)}


@dataclass
class MadeUpNode:
    """What is there, by name. `trouble` is called before, amid and after each change."""

    modes: set[str] = field(default_factory=set)
    parts: dict[str, int] = field(default_factory=dict)
    """Serial numbers; 0 for a part that is half made or half removed."""
    files: dict[str, tuple[ClaimReference, tuple[int, ...]]] = field(default_factory=dict)
    serial: int = 0
    trouble: Callable[[], None] = lambda: None

    @property
    def kinds(self) -> Sequence[str]:
        return ("mode", "part", "file")

    def observe(self) -> Collection[Identity]:
        return {
            *(Identity("mode", name, name) for name in self.modes),
            *(Identity("part", name, name.partition("/")[0]) for name in self.parts),
            *(Identity("file", name) for name in self.files),
        }

    def owner(self, identity: Identity) -> ClaimReference | None:
        return self.files[identity.name][0] if identity.kind == "file" else None

    def make(self, resource: Resource, made: Mapping[Identity, Serial]) -> Serial:
        self.trouble()
        name = resource.identity.name
        match resource:
            case Mode():
                self.modes.add(name)
            case Part(gpu):
                assert gpu in self.modes, "a part is made before its mode"
                if not self.parts.get(name):
                    self.parts[name] = 0
                    self.trouble()
                    self.serial += 1
                    self.parts[name] = self.serial
            case File(claim, parts):
                serials = tuple(made[part.identity] or 0 for part in parts)
                assert all(serials), "a file is made before its parts"
                self.files[name] = claim, serials
        self.trouble()
        return self.parts[name] if isinstance(resource, Part) else None

    def remove_leftover(self, identity: Identity) -> None:
        self.remove(identity)

    def remove(self, identity: Identity) -> None:
        self.trouble()
        match identity.kind:
            case "mode":
                used = any(name.startswith(f"{identity.name}/") for name in self.parts)
                assert not used, "a mode is removed before its parts"
                self.modes.discard(identity.name)
            case "part":
                if identity.name in self.parts:
                    self.parts[identity.name] = 0
                    self.trouble()
                    del self.parts[identity.name]
            case "file":
                self.files.pop(identity.name, None)
            case kind:
                raise AssertionError(kind)
        self.trouble()

    def reboot(self) -> None:
        self.modes.clear()
        self.files.clear()

    def assert_holds(self, claims: Collection[NodeClaim]) -> None:
        """Asserts that exactly what these claims need is there."""
        parts = {claim.uid: [p for p in needed(claim) if isinstance(p, Part)] for claim in claims}
        assert self.modes == {part.gpu for own in parts.values() for part in own}
        assert self.parts.keys() == {p.identity.name for own in parts.values() for p in own}
        assert all(self.parts.values()), "a part is half made"
        assert {uid: serials for uid, (_, serials) in self.files.items()} == {
            uid: tuple(self.parts[part.identity.name] for part in own) for uid, own in parts.items()
        }
