"""The bill of materials: what Carina needs at run time, in CycloneDX 1.6, made from the lock.

Licences and what needs what are as the packages themselves declare them. The environment in which
this runs is made from the lock (`make setup`), so their metadata is at hand.
"""

import hashlib
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from typing import Final
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import License
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name

from release.project import TIME, Project
from release.wheels import RUNTIME_LOCK

_PINNED: Final = re.compile(r"^([\w.-]+)==([^\s;\\]+)", re.MULTILINE)


class NotFromLockError(RuntimeError):
    """The environment is not the lock's."""


def bill_of_materials(project: Project) -> str:
    """The bill of materials, as JSON; the same for the same lock and version.

    Raises:
        NotFromLockError: a package of the lock is not installed, or in another version.
    """
    lock = RUNTIME_LOCK.read_bytes()
    packages = {
        canonicalize_name(name): _installed(name, version)
        for name, version in _PINNED.findall(lock.decode())
    }
    components = {name: _component(name, package) for name, package in packages.items()}
    carina = Component(
        name=project.name,
        version=project.version,
        type=ComponentType.APPLICATION,
        bom_ref=project.name,
        licenses=[LicenseFactory().make_from_string("Apache-2.0")],
        purl=PackageURL("pypi", name=project.name, version=project.version),
    )
    digest = hashlib.sha256(lock).hexdigest()
    bom = Bom(
        components=components.values(),
        serial_number=uuid5(NAMESPACE_URL, f"{project.name} {project.version} {digest}"),
        metadata=BomMetaData(component=carina, timestamp=datetime.fromtimestamp(TIME, UTC)),
    )
    needed = {name: set(_needed(package)) & components.keys() for name, package in packages.items()}
    for name, component in components.items():
        bom.register_dependency(component, [components[other] for other in sorted(needed[name])])
    direct = sorted({*_needed(distribution(project.name))} & components.keys())
    bom.register_dependency(carina, [components[name] for name in direct])
    return JsonV1Dot6(bom).output_as_string(indent=2) + "\n"


def _installed(name: str, version: str) -> Distribution:
    try:
        found = distribution(name)
    except PackageNotFoundError:
        raise NotFromLockError(f"{name} is not installed; run make setup") from None
    if found.version != version:
        raise NotFromLockError(
            f"{name} {found.version} is installed, the lock has {version}; run make setup"
        )
    return found


def _component(name: str, package: Distribution) -> Component:
    found = _license(package)
    return Component(
        name=name,
        version=package.version,
        bom_ref=name,
        licenses=[] if found is None else [found],
        purl=PackageURL("pypi", name=name, version=package.version),
    )


def _license(package: Distribution) -> License | None:
    """What the package declares: the SPDX expression, else its own words, else a classifier."""
    stated = {field: package.metadata[field] for field in package.metadata}
    declared = stated.get("License-Expression") or stated.get("License")
    if not declared:
        classifiers = package.metadata.get_all("Classifier") or ()
        of_licences = [text for text in classifiers if text.startswith("License :: ")]
        declared = of_licences[0].rpartition(" :: ")[2] if of_licences else None
    return LicenseFactory().make_from_string(declared) if declared else None


def _needed(package: Distribution) -> Iterator[NormalizedName]:
    """The packages that one needs here, without extras."""
    for text in package.requires or ():
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield canonicalize_name(requirement.name)
