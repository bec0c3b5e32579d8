"""`carina-sharing`: connects the parts of the process, and stops them on SIGTERM."""

import contextlib
import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from carina_dra.durable_file import make_folder
from carina_dra.nvidia.driver_search import DriverSearch
from carina_dra.nvidia.loaded_driver import gpu_addresses
from carina_dra.nvidia.nvml_library import NvmlLibrary
from carina_dra.process.execution import start_again
from carina_dra.process.program import ProgramError, run_to_the_end, served_http
from carina_dra.sharing.files import MPS_DRIVER
from carina_dra.sharing.message import Offers, SharingReport, WantedShares
from sharing import ending, namespaces
from sharing.cgroup import KubepodsFolder
from sharing.metrics import registry
from sharing.mps.cgroups import group_name
from sharing.mps.installation import MpsSearch
from sharing.mps.supervisor import MpsSupervisor
from sharing.processes import GpuProcesses, ProcessTable
from sharing.sampling import Sampling
from sharing.settings import SharingSettings
from sharing.socket_server import SocketServer
from sharing.use import GpuProcess
from sharing.wanted_file import WantedFile

PROGRAM: Final = "carina-sharing"
_PROC: Final = Path("/proc")

_log = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs until SIGTERM or SIGINT. Exits with 2 if the settings are invalid."""
    run_to_the_end(PROGRAM, SharingSettings, _run_or_start_again, arguments)


def _run_or_start_again(chosen: SharingSettings, stop: threading.Event) -> None:
    if run(chosen, stop):
        start_again()


def run(chosen: SharingSettings, stop: threading.Event) -> bool:
    """Runs until `stop` is set, or until the loaded driver library was replaced.

    Returns whether to start it again in its place.

    Raises ProgramError: it does not see the processes of the node, or a folder, file, socket or
    address cannot be used.
    """
    if (problem := namespaces.problem()) is not None:
        raise ProgramError(problem)
    again = threading.Event()

    def begin_again() -> None:
        again.set()
        stop.set()

    search = DriverSearch(chosen.driver_locations)
    library = NvmlLibrary(
        partial(gpu_addresses, chosen.host_root), search.nvml_libraries, below=search.roots
    )
    table = ProcessTable(_PROC, _folders(chosen), group_name(chosen.driver_name))
    mps_search = MpsSearch(
        search,
        host_root=chosen.host_root,
        cgroup_root=chosen.cgroup_root,
        plugin_directory=chosen.plugin_directory,
        links=chosen.plugin_directory / MPS_DRIVER,
    )
    supervisor = MpsSupervisor(
        chosen.plugin_directory,
        search=mps_search,
        cgroup_root=chosen.cgroup_root,
        driver_name=chosen.driver_name,
    )
    sampling = Sampling(
        library,
        GpuProcesses(table),
        start_again=begin_again,
        end=_end(chosen, table),
    )
    file = WantedFile(chosen.plugin_directory)
    try:
        make_folder(chosen.plugin_directory)
        wanted = file.load()
        server = SocketServer(
            chosen.socket,
            chosen.new_socket,
            want=partial(_keep, file, supervisor, sampling),
            report=partial(_report, sampling, supervisor, mps_search),
        )
    except OSError as error:
        raise ProgramError(
            f"{chosen.plugin_directory} cannot be used: {error}; it must be a folder of the host "
            "that this process can write"
        ) from error
    if wanted is not None:
        _watch(supervisor, sampling, wanted)
    with contextlib.ExitStack() as cleanup:
        server.start()
        cleanup.callback(server.stop)
        cleanup.enter_context(
            served_http(
                chosen.http_address,
                metrics=partial(generate_latest, registry(sampling)),
                content_type=CONTENT_TYPE_LATEST,
                healthy=server.problem,
                ready=lambda: None,
            )
        )
        threading.Thread(
            target=sampling.run, args=(server.tell,), name="sampling", daemon=True
        ).start()
        threading.Thread(
            target=supervisor.run, args=(server.tell, stop), name="mps", daemon=True
        ).start()
        stop.wait()
        _log.info("stopping")
    return again.is_set()


def _end(chosen: SharingSettings, table: ProcessTable) -> Callable[[GpuProcess], str | None] | None:
    """What ends processes, if the settings say so."""
    match chosen.watchdog:
        case "warn":
            return None
        case "kill":
            if (problem := ending.problem()) is not None:
                raise ProgramError(f"{problem}, so no process can be ended; set watchdog to warn")
            return partial(ending.end_process, table)


def _folders(chosen: SharingSettings) -> tuple[KubepodsFolder, ...]:
    if chosen.kubepods is not None:
        return (KubepodsFolder(str(chosen.kubepods)),)
    return namespaces.kubepods_folders(_PROC)


def _keep(
    file: WantedFile, supervisor: MpsSupervisor, sampling: Sampling, told: WantedShares
) -> None:
    wanted = told.after(file.last)
    try:
        file.save(wanted)
    except OSError as error:
        _log.error("what is to be watched cannot be recorded", extra={"error": str(error)})
        file.forget()  # after a restart, nothing is better than what was wanted before
    _watch(supervisor, sampling, wanted)


def _watch(supervisor: MpsSupervisor, sampling: Sampling, wanted: WantedShares) -> None:
    if wanted.daemons is not None:  # before its generation is reported
        supervisor.want(wanted.daemons)
    sampling.want(wanted)


def _report(sampling: Sampling, supervisor: MpsSupervisor, search: MpsSearch) -> SharingReport:
    # The samples first, so that the daemons are those of their generation, or of a later one.
    samples = sampling.report()
    return samples.model_copy(
        update={
            "daemons": supervisor.report(),
            "offers": Offers(ends_violators=samples.offers.ends_violators, no_mps=search.problem()),
        }
    )
