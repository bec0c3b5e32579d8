"""Scenarios in files."""

from dataclasses import dataclass, replace
from math import isinf
from typing import Final

from carina_dra.manifests.manifest import ManifestError, ManifestObjects
from carina_dra.resource import DeviceClass, JsonObject
from carina_dra.resource.errors import BadValueError
from controller.engine.files.file import numbered_documents, read_snapshot
from controller.engine.files.queue import API_VERSION
from controller.engine.files.snapshot import SNAPSHOT
from controller.engine.files.value import codec_of
from controller.engine.simulate.expansion import expand
from controller.engine.simulate.replay import replay
from controller.engine.simulate.scenario import KIND, Scenario
from controller.engine.simulate.trace import Trace


@dataclass(frozen=True, slots=True)
class Overrides:
    """What takes the place of a scenario's own fields; None for what does not."""

    until: float | None = None
    """Seconds after the start."""
    seed: int | None = None


NO_OVERRIDES: Final = Overrides()


def read_trace(source: str, content: bytes, overrides: Overrides = NO_OVERRIDES) -> Trace:
    """Reads a scenario or a snapshot; `source` is the name of the file in errors.

    A file with a scenario may have DeviceClasses beside it.

    Raises:
        ManifestError: the content is neither, or not valid.
    """
    found = list(numbered_documents(source, content))
    kinds = [document.get("kind") for _, document in found if isinstance(document, dict)]
    if KIND not in kinds and (SNAPSHOT in kinds or "List" in kinds):
        return _read_snapshot(source, content, overrides)
    return _read_scenario(source, found, overrides)


def _read_snapshot(source: str, content: bytes, overrides: Overrides) -> Trace:
    snapshot = read_snapshot(source, content)
    if isinf(snapshot.now):
        raise ManifestError(f"{source}: {SNAPSHOT}: now: is infinite; write a time in seconds")
    trace = replay(source, snapshot)
    if overrides.until is not None:
        trace = replace(trace, until=trace.start.now + overrides.until)
    return trace


def _read_scenario(source: str, found: list[tuple[str, object]], overrides: Overrides) -> Trace:
    scenario: tuple[str, Scenario] | None = None
    objects = ManifestObjects()
    for location, document in found:
        body = document if isinstance(document, dict) else {}
        if (body.get("apiVersion"), body.get("kind")) == (API_VERSION, KIND):
            if scenario is not None:
                raise ManifestError(f"{location}: Scenario: is also in {scenario[0]}")
            scenario = (location, _decode(location, body))
        elif body.get("kind") == DeviceClass.KIND:
            objects.add(location, body)
        else:
            raise ManifestError(
                f"{location}: is neither a {KIND} nor a DeviceClass; write apiVersion: "
                f"{API_VERSION}, kind: {KIND}"
            )
    if scenario is None:
        raise ManifestError(
            f"{source}: has no {KIND} and no {SNAPSHOT}; write apiVersion: {API_VERSION}, "
            f"kind: {KIND}"
        )
    location, written = scenario
    if overrides.until is not None:
        written = replace(written, until=overrides.until)
    if overrides.seed is not None:
        written = replace(written, seed=overrides.seed)
    try:
        return expand(written, objects.classes)
    except BadValueError as error:
        raise _refusal(location, error) from None


def _decode(location: str, body: JsonObject) -> Scenario:
    members = {name: value for name, value in body.items() if name not in ("apiVersion", "kind")}
    try:
        scenario: Scenario = codec_of(Scenario).read(members)
    except BadValueError as error:
        raise _refusal(location, error) from None
    except RecursionError:
        raise ManifestError(f"{location}: {KIND}: is nested too deeply") from None
    return scenario


def _refusal(location: str, error: BadValueError) -> ManifestError:
    parts = (location, KIND, error.path, error.problem)
    return ManifestError(": ".join(part for part in parts if part))
