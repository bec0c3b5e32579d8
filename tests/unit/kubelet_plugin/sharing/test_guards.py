"""What carina-sharing offers for the shares of a GPU, while it comes, goes and starts again."""

from dataclasses import dataclass, field

import pytest

from carina_dra.sharing.message import Offers, ShareUse, SharingReport, Unwatched
from kubelet_plugin.inventory.share_guard import UNGUARDED, ShareGuard
from kubelet_plugin.sharing.guards import ShareGuards

BOTH = ShareGuard(ends_violators=True, mps=True)
ONLY_MPS = ShareGuard(mps=True)


@dataclass
class Site:
    """Guards, and what follows from them."""

    seconds: float = 0.0
    changes: int = 0
    guards: ShareGuards = field(init=False)

    def __post_init__(self) -> None:
        self.guards = ShareGuards(changed=self._changed, clock=lambda: self.seconds)

    def _changed(self) -> None:
        self.changes += 1

    def hear(self, *, unseen: str = "", seen: str = "", offers: Offers | None = None) -> None:
        self.guards.hear(
            SharingReport(
                generation=1,
                time=1.0,
                offers=offers or Offers(ends_violators=True, no_mps=None),
                unwatched=(Unwatched(gpu=unseen, reason="it is in MIG mode"),) if unseen else (),
                uses=(_use(seen),) if seen else (),
            )
        )


def _use(gpu: str) -> ShareUse:
    return ShareUse(
        gpu=gpu,
        claims=("claim",),
        given_mib=1,
        given_cores=1,
        used_mib=0,
        pods=(),
        idle_since=None,
        exceeded_since=None,
    )


@pytest.fixture
def site() -> Site:
    return Site()


def test_there_are_none_before_it_has_said_something(site: Site) -> None:
    assert site.guards.of("GPU-0") == UNGUARDED


def test_what_it_offers_is_so_for_all_gpus_and_told_once(site: Site) -> None:
    site.hear()
    site.hear()
    assert site.guards.of("GPU-0") == site.guards.of("GPU-1") == BOTH
    assert site.changes == 1


def test_what_an_earlier_process_knew_counts_until_it_speaks(site: Site) -> None:
    site.guards.recall({"GPU-0": BOTH, "GPU-1": UNGUARDED})
    assert site.guards.of("GPU-0") == BOTH
    assert site.guards.of("GPU-1") == UNGUARDED
    site.hear(offers=Offers(ends_violators=False, no_mps="no driver"))
    assert site.guards.of("GPU-0") == UNGUARDED
    assert site.changes == 1


def test_nothing_is_left_once_it_is_gone(site: Site) -> None:
    site.hear()
    site.guards.forget()
    site.guards.forget()
    assert site.guards.of("GPU-0") == UNGUARDED
    assert site.changes == 2


def test_what_offered_nothing_changes_nothing_when_it_is_gone(site: Site) -> None:
    site.guards.forget()
    assert site.changes == 0


def test_that_an_earlier_process_knew_of_nothing_changes_nothing(site: Site) -> None:
    site.guards.recall({"GPU-0": UNGUARDED})
    site.hear(offers=Offers())
    site.guards.forget()
    assert site.changes == 0


def test_what_was_recalled_is_gone_with_it(site: Site) -> None:
    site.guards.recall({"GPU-0": BOTH})
    site.guards.forget()
    assert site.guards.of("GPU-0") == UNGUARDED
    assert site.changes == 1


def test_a_gpu_that_is_not_watched_for_a_moment_keeps_its_guard(site: Site) -> None:
    site.hear(unseen="GPU-0")
    site.seconds = 29.0
    site.hear(unseen="GPU-0")
    assert site.guards.of("GPU-0") == BOTH
    site.hear(seen="GPU-0")
    site.seconds = 31.0
    site.hear(unseen="GPU-0")
    assert site.guards.of("GPU-0") == BOTH


def test_of_a_gpu_that_cannot_be_watched_nobody_ends_violators(site: Site) -> None:
    site.hear(unseen="GPU-0")
    site.seconds = 30.0
    site.hear(unseen="GPU-0")
    assert site.guards.of("GPU-0") == ONLY_MPS
    assert site.guards.of("GPU-1") == BOTH


def test_that_is_known_after_its_last_share_until_it_is_watched(site: Site) -> None:
    site.hear(unseen="GPU-0")
    site.seconds = 31.0
    site.hear(unseen="GPU-0")
    site.hear()
    assert site.guards.of("GPU-0") == ONLY_MPS
    site.hear(seen="GPU-0")
    assert site.guards.of("GPU-0") == BOTH
