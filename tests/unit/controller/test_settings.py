"""The controller's settings, and what follows from them."""

from pathlib import Path

import pytest

from carina_dra.allocator.preference import Order, Policy
from carina_dra.kube.body import ObjectKey
from carina_dra.process.settings import SettingsError, load
from controller import settings
from controller.engine.model.plan import Action
from controller.engine.model.snapshot import EngineSettings
from controller.settings import Settings


def loaded(*flags: str, **environment: str) -> Settings:
    flags = ("--identity", "controller-1", *flags)
    return load(Settings, flags, environment, program="controller", version="1")


def test_the_identity_has_to_be_set() -> None:
    with pytest.raises(SettingsError, match="identity is not set; set --identity or CARINA_IDENT"):
        load(Settings, (), {}, program="controller", version="1")


def test_the_engine_decides_as_it_does_by_default() -> None:
    assert loaded().engine_settings == EngineSettings()


def test_every_setting_of_the_engine_is_passed_on() -> None:
    settings = loaded(
        *("--actions", "stale, reclaim", "--placement", "spread/binpack"),
        *("--consolidation-limit", "4", "--staleness-grace-seconds", "90"),
        *("--preempt-min-runtime-seconds", "5", "--reclaim-min-runtime-seconds", "600"),
        *("--search-steps", "100"),
    )

    assert settings.engine_settings == EngineSettings(
        actions=(Action.STALE, Action.RECLAIM),
        placement=Policy(Order.SPREAD, Order.BINPACK),
        consolidation_limit=4,
        staleness_grace=90,
        preempt_min_runtime=5,
        reclaim_min_runtime=600,
        search_steps=100,
    )


def test_without_actions_nothing_is_evicted() -> None:
    assert loaded("--actions", "").engine_settings.actions == ()


def test_another_leader_takes_over_within_15_seconds_of_a_kill() -> None:
    """After two retries the last renewal is seen, after two more its expiry (`LeaderElector`)."""
    timing = loaded().lease_timing
    assert timing.duration + 4 * timing.retry_period < 15


def test_the_lease_is_in_the_namespace_of_the_manifests() -> None:
    assert loaded().lease == ObjectKey("carina-system", "carina-controller")
    other = loaded("--lease-namespace", "gpu-system", "--lease-name", "trial")
    assert other.lease == ObjectKey("gpu-system", "trial")


def test_topologies_and_lists_can_be_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(
        "actions: [preempt]\n"
        "topologies:\n"
        "  fabric: [topology.example.com/block, topology.example.com/rack]\n"
    )
    settings = loaded("--config", str(file))

    assert settings.actions == (Action.PREEMPT,)
    assert settings.topologies == {
        "fabric": ("topology.example.com/block", "topology.example.com/rack")
    }


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (("--actions", "reclaim,evict"), "'consolidate', 'reclaim', 'preempt' or 'stale'"),
        (("--placement", "worst"), "placement is 'worst', set by the flags: policy 'worst': write"),
        (("--exclusive", "perhaps"), "exclusive is 'perhaps', set by the flags"),
        (("--lease-name", "Carina"), "lease_name is 'Carina', set by the flags"),
        (("--renew-seconds", "9"), "renew_seconds 9 and lease_seconds 9 must ascend"),
        (("--retry-seconds", "6"), "retry_seconds 6, renew_seconds 6 and"),
        (("--search-steps", "0"), "greater than or equal to 1"),
        (("--writers", "0"), "greater than or equal to 1"),
        (("--avoid-seconds", "0"), "greater than 0"),
        (("--verdict-seconds", "-1"), "greater than or equal to 0"),
        (("--decide-seconds", "inf"), "finite number"),
        (("--move-interval-seconds", "nan"), "finite number"),
    ],
)
def test_errors_name_the_setting_and_the_allowed_values(
    flags: tuple[str, ...], problem: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        loaded(*flags)
    assert problem in str(caught.value)


def test_a_topology_needs_a_level(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("topologies: {fabric: []}\n")
    with pytest.raises(SettingsError, match=r"topologies.fabric is .*at least 1 item"):
        loaded("--config", str(file))


def test_settings_of_another_process_are_read_from_their_text() -> None:
    read = settings.read("ConfigMap a/b", "placement: spread\ntopologies: {fabric: [rack]}\n")
    assert read.engine_settings.placement == Policy.parse("spread")
    assert read.topologies == {"fabric": ("rack",)}
    assert settings.read("ConfigMap a/b", "").engine_settings == EngineSettings()


def test_errors_in_a_text_name_its_source() -> None:
    with pytest.raises(SettingsError, match="placment, set by ConfigMap a/b, is not a setting"):
        settings.read("ConfigMap a/b", "placment: spread\n")
    with pytest.raises(SettingsError, match="ConfigMap a/b must contain `name: value` lines"):
        settings.read("ConfigMap a/b", "spread")
