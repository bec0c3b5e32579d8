"""ResourceClaimTemplate: from which every pod that names it gets a claim of its own."""

from dataclasses import dataclass, field
from typing import ClassVar

from carina_dra.resource.claim import ResourceClaimSpec
from carina_dra.resource.metadata import ObjectMeta
from carina_dra.resource.schema import Struct


@dataclass(frozen=True, slots=True)
class ResourceClaimTemplateSpec(Struct):
    """What claims made from a template are to be."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    """Labels and annotations only."""
    spec: ResourceClaimSpec = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class ResourceClaimTemplate(Struct):
    """From which each pod that names it gets a claim of its own."""

    API_VERSION: ClassVar[str] = "resource.k8s.io/v1"
    KIND: ClassVar[str] = "ResourceClaimTemplate"

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: ResourceClaimTemplateSpec = field(kw_only=True)
