"""Which MPS daemons are kept and told, by keepers that only note what is wanted of them."""

import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from carina_dra.nvidia.driver_search import DriverSearch
from carina_dra.sharing.files import MPS, MPS_LOCK
from carina_dra.sharing.message import MpsDaemon, MpsDevice, Reference, WantedDaemon
from sharing.mps import supervisor
from sharing.mps.installation import MpsSearch
from sharing.mps.supervisor import MpsSupervisor


def wanted(claim: str, memory_mib: int = 1000) -> WantedDaemon:
    return WantedDaemon(
        claim=Reference(namespace="default", name=claim, uid=claim),
        devices=(MpsDevice(uuid="GPU-a", memory_mib=memory_mib),),
        thread_percentage=10,
    )


A, B = wanted("a"), wanted("b")


class Noted:
    """A keeper that does nothing."""

    def __init__(
        self,
        uid: str,
        _: object,
        *,
        wanted: WantedDaemon | None,
        tell: Callable[[], None],
        removed: Callable[["Noted"], None],
    ) -> None:
        self.uid = uid
        self.wanted = wanted
        self.tell = tell
        self.removed = removed
        self.has_ended = False

    def start(self) -> None:
        pass

    def want(self, wanted: WantedDaemon | None) -> bool:
        if self.has_ended:
            return False
        self.wanted = wanted
        return True

    def report(self) -> MpsDaemon | None:
        return None if self.wanted is None else MpsDaemon(wanted=self.wanted, state="ready")


class Site:
    """A supervisor, and the keepers that it has made."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.made: list[Noted] = []
        self.told = 0
        self.stop = threading.Event()
        monkeypatch.setattr(supervisor, "Keeper", self._make)
        self.supervisor = MpsSupervisor(
            folder,
            search=MpsSearch(
                DriverSearch([]),
                host_root=folder,
                cgroup_root=folder,
                plugin_directory=folder,
                links=folder,
            ),
            cgroup_root=folder,
            driver_name="gpu.carina.dev",
        )

    def _make(self, *arguments: object, **named: object) -> Noted:
        self.made.append(Noted(*arguments, **named))  # type: ignore[arg-type]
        return self.made[-1]

    def _tell(self) -> None:
        self.told += 1

    def run(self) -> None:
        self.supervisor.run(self._tell, self.stop)

    def leave(self, uid: str) -> None:
        """An earlier process has left the folder of a daemon."""
        (self.folder / MPS / uid).mkdir(parents=True)

    def kept(self) -> dict[str, WantedDaemon | None]:
        return {keeper.uid: keeper.wanted for keeper in self.made}

    def states(self) -> dict[str, tuple[str, str]]:
        reports = self.supervisor.report()
        return {told.wanted.claim.uid: (told.state, told.reason) for told in reports}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site(tmp_path, monkeypatch)


def test_what_is_wanted_is_kept_and_told(site: Site) -> None:
    site.run()
    site.supervisor.want([B, A])
    assert site.kept() == {"a": A, "b": B}
    assert list(site.states()) == ["a", "b"]


def test_what_an_earlier_process_has_left_is_kept_until_it_has_ended(site: Site) -> None:
    site.leave("a")
    site.leave("c")
    site.supervisor.want([A])
    site.run()
    assert site.kept() == {"a": A, "c": None}


def test_nothing_is_ended_before_it_is_known_what_is_wanted(site: Site) -> None:
    site.leave("a")
    site.run()
    assert site.made == []
    assert site.told


@pytest.fixture
def another(site: Site) -> Iterator[Callable[[], None]]:
    """Another process supervises, until this is called."""
    lock = os.open(site.folder / MPS_LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    yield lambda: fcntl.flock(lock, fcntl.LOCK_UN)
    os.close(lock)


def test_nothing_is_done_while_another_process_supervises(
    site: Site, another: Callable[[], None]
) -> None:
    running = threading.Thread(target=site.run)
    running.start()
    site.supervisor.want([A])
    reason = "another process of carina-sharing still supervises the daemons"
    assert (site.made, site.states()) == ([], {"a": ("starting", reason)})
    another()
    running.join()
    assert site.kept() == {"a": A}
    assert site.told == 1


def test_who_waits_for_another_process_ends_when_it_is_told_to(
    site: Site, another: Callable[[], None]
) -> None:
    site.supervisor.want([A])
    site.stop.set()
    site.run()
    assert site.made == []


def test_a_keeper_is_told_when_something_else_is_wanted(site: Site) -> None:
    site.run()
    site.supervisor.want([A])
    site.supervisor.want([wanted("a", 2000), B])
    assert site.kept() == {"a": wanted("a", 2000), "b": B}
    site.supervisor.want([B])
    assert site.kept() == {"a": None, "b": B}
    assert len(site.made) == 2


def test_a_claim_that_is_wanted_again_while_its_keeper_ends_has_another(site: Site) -> None:
    site.run()
    site.supervisor.want([A])
    (first,) = site.made
    first.has_ended = True
    site.supervisor.want([A])
    assert len(site.made) == 2
    first.removed(first)
    site.supervisor.want([A])
    assert len(site.made) == 2


def test_one_that_was_removed_is_told_no_more(site: Site) -> None:
    site.run()
    site.supervisor.want([A])
    site.supervisor.want([])
    (keeper,) = site.made
    keeper.wanted = A  # as a keeper tells what it was wanted for last
    assert list(site.states()) == ["a"]
    keeper.removed(keeper)
    assert site.states() == {}


def test_a_uid_that_is_no_name_of_a_folder_is_refused_and_others_are_kept(site: Site) -> None:
    site.run()
    site.supervisor.want([wanted("../a"), B])
    assert site.kept() == {"b": B}
    assert site.states() == {
        "../a": ("failed", "'../a' cannot be the name of a folder"),
        "b": ("ready", ""),
    }


def test_folders_that_cannot_be_read_keep_no_daemon_from_being_started(site: Site) -> None:
    (site.folder / MPS).touch()
    site.run()
    site.supervisor.want([A])
    assert site.kept() == {"a": A}
