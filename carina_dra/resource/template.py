"""ResourceClaimTemplate: each pod that refers to it gets its own claim."""

from dataclasses import dataclass, field
from typing import ClassVar

from carina_dra.resource.claim import ResourceClaimSpec
from carina_dra.resource.metadata import ObjectMeta
from carina_dra.resource.schema import Struct


@dataclass(frozen=True, slots=True)
class ResourceClaimTemplateSpec(Struct):
    """The metadata and spec of the claims."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    """Only labels and annotations are used."""
    spec: ResourceClaimSpec = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class ResourceClaimTemplate(Struct):
    """A template for claims: each pod that refers to it gets its own."""

    API_VERSION: ClassVar[str] = "resource.k8s.io/v1"
    KIND: ClassVar[str] = "ResourceClaimTemplate"

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: ResourceClaimTemplateSpec = field(kw_only=True)
