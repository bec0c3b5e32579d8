"""Volumes of a cluster, and which pods use them on which nodes, kept up to date."""

from collections.abc import Iterator, Mapping
from typing import TypeVar, assert_never

from controller.engine.model.pod import Pod
from controller.engine.model.volume import (
    AttachLimits,
    Storage,
    StorageCapacity,
    StorageClass,
    StorageObject,
    Volume,
    VolumeClaim,
    VolumeClaimState,
    VolumeDriver,
)

_T = TypeVar("_T")


class Volumes:
    """What is known of volumes, with the pods that refer to their claims."""

    def __init__(self, storage: Storage) -> None:
        self.claims = dict(storage.claims)
        self.volumes = dict(storage.volumes)
        self.classes = dict(storage.classes)
        self.capacities: dict[str, dict[str, StorageCapacity]] = {}
        """By class."""
        for name, capacity in storage.capacities.items():
            self.capacities.setdefault(capacity.class_name, {})[name] = capacity
        self.drivers = dict(storage.drivers)
        self.limits = dict(storage.limits)
        self.available = {name for name, volume in self.volumes.items() if volume.is_available}
        """The volumes that can be bound to a claim."""
        self.moment = 0
        """How often volumes, classes, capacities and drivers have changed."""
        self.users: dict[str, dict[str, int]] = {}
        """By claim: the pods that are on nodes, also those that are leaving; on how many each."""
        self.on_node: dict[str, dict[str, int]] = {}
        """By node: the claims in use there, and by how many pods."""
        self._referrers: dict[str, dict[str, None]] = {}
        """By claim: all pods that refer to it."""

    def storage(self) -> Storage:
        """What matters for the pods that there are."""
        claims = {key: self.claims[key] for key in self._referrers if key in self.claims}
        bound = {claim.volume for claim in claims.values()}
        return Storage(
            claims,
            {
                name: volume
                for name, volume in self.volumes.items()
                if name in bound or volume.is_available
            },
            self.classes,
            {
                name: capacity
                for known in self.capacities.values()
                for name, capacity in known.items()
            },
            self.drivers,
            self.limits,
        )

    def put(self, name: str, watched: StorageObject) -> list[str] | None:
        """Adds or updates an object; gives the pods for which that matters, None if it was so."""
        return self._change(name, watched, is_there=True)

    def remove(self, kind: type[StorageObject], name: str) -> list[str]:
        """Applies that an object is gone; gives the pods for which that may matter."""
        watched = self._known(kind, name)
        return [] if watched is None else self._change(name, watched, is_there=False) or []

    def refer(self, pod: Pod) -> None:
        """Applies a pod."""
        for claim in pod.volumes:
            self._referrers.setdefault(claim, {})[pod.key] = None

    def unrefer(self, pod: Pod) -> None:
        """Records that a pod is gone."""
        for claim in pod.volumes:
            _drop(self._referrers, claim, pod.key)

    def use(self, pod: Pod, node: str) -> None:
        """Records that a pod is on a node."""
        for claim in pod.volumes:
            _count(self.users, claim, pod.key, 1)
            _count(self.on_node, node, claim, 1)

    def leave(self, pod: Pod, node: str) -> None:
        """Records that it is not; the exact inverse of `use`."""
        for claim in pod.volumes:
            _count(self.users, claim, pod.key, -1)
            _count(self.on_node, node, claim, -1)

    def driver_of(self, claim: str) -> str:
        """The driver that attaches a volume, as far as it is known."""
        known = self.claims.get(claim)
        if known is None:
            return ""
        if known.state is VolumeClaimState.BOUND:
            volume = self.volumes.get(known.volume)
            return "" if volume is None else volume.driver
        found = self.classes.get(known.class_name)
        return "" if found is None else found.provisioner

    def _known(self, kind: type[StorageObject], name: str) -> StorageObject | None:
        if kind is StorageCapacity:
            of_class = (known[name] for known in self.capacities.values() if name in known)
            return next(of_class, None)
        known: dict[type[StorageObject], Mapping[str, StorageObject]] = {
            VolumeClaim: self.claims,
            Volume: self.volumes,
            StorageClass: self.classes,
            VolumeDriver: self.drivers,
            AttachLimits: self.limits,
        }
        return known[kind].get(name)

    def _change(self, name: str, watched: StorageObject, *, is_there: bool) -> list[str] | None:
        is_so = self._set(name, watched, is_there=is_there)
        return None if is_so else list(self._concerned(name, watched))

    def _concerned(self, name: str, watched: StorageObject) -> Iterator[str]:
        if isinstance(watched, VolumeClaim):
            yield from list(self._referrers.get(name, ()))
            return
        self.moment += 1
        for claim, pods in self._referrers.items():
            if self._concerns(name, watched, claim):
                yield from pods

    def _set(self, name: str, watched: StorageObject, *, is_there: bool) -> bool:
        """Sets or removes an object; whether it was so before."""
        match watched:
            case VolumeClaim():
                return _is_set(self.claims, name, watched if is_there else None)
            case Volume():
                self.available.discard(name)
                if is_there and watched.is_available:
                    self.available.add(name)
                return _is_set(self.volumes, name, watched if is_there else None)
            case StorageClass():
                return _is_set(self.classes, name, watched if is_there else None)
            case StorageCapacity(class_name=class_name):
                of_class = self.capacities.setdefault(class_name, {})
                return _is_set(of_class, name, watched if is_there else None)
            case VolumeDriver():
                return _is_set(self.drivers, name, watched if is_there else None)
            case AttachLimits():
                return _is_set(self.limits, name, watched if is_there else None)
        assert_never(watched)

    def _concerns(self, name: str, watched: StorageObject, key: str) -> bool:
        """Whether an object that is no claim matters for a claim."""
        claim = self.claims.get(key)
        if claim is None:
            return False
        match watched:
            case Volume():
                return claim.volume in ("", name)
            case StorageClass():
                return claim.class_name == name and not claim.volume
            case StorageCapacity(class_name=class_name):
                return claim.class_name == class_name and not claim.volume
            case VolumeClaim() | VolumeDriver() | AttachLimits():
                return True
        assert_never(watched)


def _is_set(known: dict[str, _T], name: str, value: _T | None) -> bool:
    """Sets or removes an entry; whether it was so before."""
    before = known.get(name)
    if value is not None:
        known[name] = value
    elif before is not None:
        del known[name]
    return before == value


def _drop(index: dict[str, dict[str, None]], key: str, member: str) -> None:
    of_key = index[key]
    del of_key[member]
    if not of_key:
        del index[key]


def _count(index: dict[str, dict[str, int]], key: str, member: str, change: int) -> None:
    of_key = index.setdefault(key, {})
    count = of_key.get(member, 0) + change
    if count:
        of_key[member] = count
    else:
        del of_key[member]
        if not of_key:
            del index[key]
