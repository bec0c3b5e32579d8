"""A running cluster as a snapshot: what the controller watches, listed once."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from carina_dra.kube.api_resource import CONFIG_MAPS
from carina_dra.kube.body import ObjectKey, key_of
from carina_dra.kube.client import Client
from carina_dra.kube.errors import ApiError, Forbidden, NotFound, PathNotFound
from controller import settings
from controller.engine.model.snapshot import EngineSettings, Snapshot
from controller.observe.mirror import Mirror
from controller.report.queue_checks import QueueAccess, access_of
from controller.run.subjects import Subject, optional_subjects, subjects

SETTINGS_FILE: Final = "settings.yaml"
"""The key of the controller's ConfigMap that has its settings."""


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """A cluster as the engine sees it, and what the engine does not see."""

    snapshot: Snapshot
    refused: Mapping[str, str] = field(default_factory=dict)
    """The groups that cannot be decided on, by key: why, and the remedy."""
    notes: tuple[str, ...] = ()
    """What could not be read, for people."""
    access: Mapping[str, QueueAccess] = field(default_factory=dict)
    """By Queue: what is wrong with who may use it. Others have nothing wrong."""


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """The settings of a cluster's controller that decisions depend on."""

    engine: EngineSettings = field(default_factory=EngineSettings)
    topologies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    note: str | None = None
    """Why these are the defaults, if they are."""


def read_settings(client: Client, config_map: ObjectKey) -> ControllerSettings:
    """The settings in the controller's ConfigMap; the defaults if it cannot be read.

    Raises:
        SettingsError: they are not valid.
        ApiError: the API server cannot be reached.
    """
    where = f"ConfigMap {config_map}"
    try:
        body = client.get(CONFIG_MAPS, config_map.name, namespace=config_map.namespace)
    except (Forbidden, NotFound) as error:
        return ControllerSettings(
            note=f"the controller's settings are taken to be the defaults: {error}"
        )
    read = settings.read(where, (body.get("data") or {}).get(SETTINGS_FILE) or "")
    return ControllerSettings(read.engine_settings, read.topologies)


def read_cluster(client: Client, chosen: ControllerSettings, now: float) -> ClusterSnapshot:
    """Lists what decisions depend on. `now` is the Unix time in seconds.

    The lists have different versions, so what changes in between may be seen in part.

    Raises:
        ApiError: a resource that every cluster with Carina serves cannot be listed.
    """
    mirror = Mirror(Snapshot(now=now, settings=chosen.engine, topologies=chosen.topologies))
    notes = [] if chosen.note is None else [chosen.note]
    for subject in subjects(mirror):
        notes += _read(client, subject)
    notes += _read_optional(client, mirror)
    mirror.refresh(now)
    roster = mirror.roster
    return ClusterSnapshot(
        mirror.state.snapshot(),
        mirror.refusals(),
        tuple(notes),
        access_of(roster.queues, roster.namespaces),
    )


def _read(client: Client, subject: Subject[Any]) -> list[str]:
    """Reads all objects of a resource; says which of them cannot be read."""
    notes = []
    for body in client.list(subject.resource).items:
        key = key_of(body)
        try:
            value = subject.parse(body)
        except Exception as error:  # noqa: BLE001 - as for the controller, one object is not all
            notes.append(f"{subject.resource.kind} {key} is left out: {error}")
        else:
            subject.put(key, value)
    return notes


def _read_optional(client: Client, mirror: Mirror) -> list[str]:
    """Reads what the cluster need not serve, in the first version that it does."""
    notes = []
    for versions in optional_subjects(mirror):
        for subject in versions:
            try:
                notes += _read(client, subject)
            except PathNotFound:
                continue
            except ApiError as error:
                notes.append(f"no {subject.resource.kind} is taken into account: {error}")
            break
    return notes
