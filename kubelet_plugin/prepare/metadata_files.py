"""The port for device metadata: writes the files that tell containers which devices they have."""

from collections.abc import Collection, Mapping
from itertools import groupby
from operator import attrgetter

from kubelet_plugin.claims.drift import MetadataDrift
from kubelet_plugin.claims.resource_failure import NameInvalid, file_failure
from kubelet_plugin.device_metadata.directory import MetadataDirectory
from kubelet_plugin.device_metadata.document import (
    MetadataNameError,
    RequestMetadata,
    described,
    generation_of,
    render_metadata,
)
from kubelet_plugin.devices.name import gpu_name, parse_name
from kubelet_plugin.devices.publish_settings import PublishSettings
from kubelet_plugin.prepare.drift_notes import DriftNotes
from kubelet_plugin.prepare.resource import (
    DeviceMetadata,
    Identity,
    Made,
    MadeInstance,
    MadeLimit,
    MadeMetadata,
    MadeMps,
    MetadataFile,
    ResourceError,
    daemon_identity,
    instance_identity,
    limit_identity,
    metadata_identity,
)


class MetadataFiles:
    """The device metadata of this driver's claims on the node."""

    def __init__(
        self,
        settings: PublishSettings,
        directory: MetadataDirectory,
        *,
        notes: DriftNotes | None = None,
    ) -> None:
        """`directory` has the same path in this process as for the container runtime.

        `notes` learns of what is written.
        """
        self._notes = notes or DriftNotes()
        self._settings = settings
        self._directory = directory

    def observe(self) -> Collection[Identity]:
        """Returns the identities of the metadata on the node, including incomplete metadata.

        Raises:
            ResourceError: the folder cannot be read.
        """
        try:
            return {metadata_identity(uid) for uid in self._directory.uids()}
        except OSError as error:
            raise self._unusable("listed", error) from error

    def make(self, metadata: DeviceMetadata, made: Mapping[Identity, Made]) -> MadeMetadata:
        """Writes a file for each request, unless it is up to date, and removes other files.

        `made` has the claim's MIG instances, the limits of its pods and its MPS daemon.

        A file whose content changes gets the next generation.

        Raises:
            ResourceError: a name cannot be part of a path, or a file cannot be written.
        """
        claim = metadata.claim
        by_request = groupby(
            sorted(claim.devices, key=attrgetter("request")), key=attrgetter("request")
        )
        wanted = [
            RequestMetadata(
                self._settings.driver,
                claim,
                request,
                tuple(
                    described(
                        allocated,
                        metadata.devices[allocated.device],
                        _instance_uuid(allocated.device, made),
                        self._settings,
                        limited=_is_limited(claim.uid, allocated.device, made),
                        mps=isinstance(made.get(daemon_identity(claim.uid)), MadeMps),
                    )
                    for allocated in devices
                ),
            )
            for request, devices in by_request
        ]
        try:
            files = {
                described_request.request: MetadataFile(
                    self._directory.file(claim.uid, described_request.request),
                    described_request.container_path,
                )
                for described_request in wanted
            }
        except MetadataNameError as error:
            raise ResourceError(NameInvalid(str(error))) from error
        try:
            self._directory.remove(claim.uid, keep=files)
            for described_request in wanted:
                self._write(described_request)
        except OSError as error:
            raise self._unusable("written", error) from error
        return MadeMetadata(files)

    def remove(self, uid: str) -> None:
        """Removes the metadata of the claim with this UID, if it exists.

        Raises:
            ResourceError: a file cannot be removed.
        """
        try:
            self._directory.remove(uid)
        except OSError as error:
            raise self._unusable("removed", error) from error

    def _write(self, metadata: RequestMetadata) -> None:
        uid, request = metadata.claim.uid, metadata.request
        before = self._directory.read(uid, request)
        generation = 0 if before is None else generation_of(before)
        content = render_metadata(metadata, generation)
        if content != before:
            self._notes.note(MetadataDrift(self._directory.file(uid, request)))
            content = render_metadata(metadata, generation + 1)
        self._directory.write(uid, request, content)

    def _unusable(self, action: str, error: OSError) -> ResourceError:
        return ResourceError(
            file_failure(
                f"device metadata in {self._directory.path}",
                action,
                error,
                "check the folder and its file system",
            )
        )


def _is_limited(claim: str, device: str, made: Mapping[Identity, Made]) -> bool:
    """Returns whether the driver keeps the claim's pod within its memory of the device's GPU."""
    return isinstance(made.get(limit_identity(claim, gpu_name(parse_name(device)))), MadeLimit)


def _instance_uuid(device: str, made: Mapping[Identity, Made]) -> str | None:
    instance = made.get(instance_identity(device))
    return instance.uuid if isinstance(instance, MadeInstance) else None
