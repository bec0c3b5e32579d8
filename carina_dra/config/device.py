"""What users tell Carina about a device: the opaque configurations of resource.carina.dev/v1alpha1.

They stand in a DeviceClass or a ResourceClaim under `config[].opaque.parameters`, and arrive on the
node with the allocation. Reading what a user wrote is strict: an unknown or misplaced field is
refused by name, since a setting that is silently dropped is one that somebody believes in.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

API_VERSION: Final = "resource.carina.dev/v1alpha1"


class DeviceConfigError(ValueError):
    """A configuration that cannot be honoured: names where it stands, the field and the remedy."""


class GpuConfig(BaseModel):
    """How a whole GPU is handed out. It has no settings of its own yet."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    apiVersion: Literal["resource.carina.dev/v1alpha1"] = API_VERSION  # noqa: N815 - the API's name
    kind: Literal["GpuConfig"] = "GpuConfig"


@dataclass(frozen=True, slots=True)
class ConfigSource:
    """One opaque configuration of an allocation, with the words to name it in a message."""

    place: str
    """Such as `claim default/train, config[0]`."""
    from_class: bool
    """The class's, which the claim's override, whatever their order."""
    requests: frozenset[str]
    """Requests it applies to (`req` or `req/sub`); empty for all."""
    parameters: Mapping[str, Any]
    """The configuration as it was written."""

    def applies_to(self, request: str) -> bool:
        """Whether it speaks of a result whose `request` is `req` or `req/sub`."""
        return not self.requests or not self.requests.isdisjoint(
            (request, request.partition("/")[0])
        )


def parse_gpu_config(place: str, parameters: Mapping[str, Any]) -> GpuConfig:
    """Reads a GpuConfig as strictly as it must be for a user.

    Raises:
        DeviceConfigError: naming `place`, the field and what is allowed there.
    """
    found = parameters.get("apiVersion"), parameters.get("kind")
    if found != (API_VERSION, "GpuConfig"):
        raise DeviceConfigError(
            f"{place}: opaque.parameters is {found[0] or 'no apiVersion'}, "
            f"{found[1] or 'no kind'}; write apiVersion: {API_VERSION}, kind: GpuConfig"
        )
    try:
        return GpuConfig.model_validate(dict(parameters))
    except ValidationError as error:
        problems = "; ".join(_problem(e["loc"], e["type"], e["msg"]) for e in error.errors())
        raise DeviceConfigError(f"{place}: {problems}") from None


def gpu_config(request: str, sources: Iterable[ConfigSource]) -> GpuConfig:
    """Gives the configuration in force for a whole GPU given to `request` (`req` or `req/sub`).

    Every source that applies is read, so that a mistake is found even where another overrides it.
    The claim's beat the class's, and within either the later beats the earlier, as a whole: fields
    of several are not mixed (KEP-4381, "opaque configuration").

    Raises:
        DeviceConfigError: as `parse_gpu_config`.
    """
    applying = [source for source in sources if source.applies_to(request)]
    by_precedence = sorted(applying, key=lambda source: not source.from_class)
    configs = [parse_gpu_config(source.place, source.parameters) for source in by_precedence]
    return configs[-1] if configs else GpuConfig()


def _problem(path: tuple[int | str, ...], kind: str, message: str) -> str:
    field = "opaque.parameters." + ".".join(str(part) for part in path)
    if kind == "extra_forbidden":
        return f"{field} is not a field of GpuConfig; remove it or correct its name"
    return f"{field}: {message}"
