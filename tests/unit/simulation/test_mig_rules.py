"""Placement rules of MIG, for every simulated product: what exists never overlaps or exceeds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulation.nvml import mig
from simulation.nvml.hardware import GpuModel, MigProfile, load_profile
from simulation.nvml.state import GpuInstance

MODELS = {
    name: model
    for profile in ("dgx-a100", "dgx-h100", "hgx-h200-sxm", "b200")
    for name, model in load_profile(profile).models.items()
}
models = st.sampled_from(list(MODELS.values()))
each_model = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)


@st.composite
def histories(draw: st.DrawFn) -> tuple[GpuModel, list[tuple[MigProfile, int | None]]]:
    """A model, and instances that somebody tries to make on it."""
    model = draw(models)
    wish = st.sampled_from(model.mig_profiles).flatmap(
        lambda profile: st.tuples(st.just(profile), st.none() | st.sampled_from(profile.starts))
    )
    return model, draw(st.lists(wish, max_size=12))


def made(model: GpuModel, wishes: list[tuple[MigProfile, int | None]]) -> tuple[GpuInstance, ...]:
    instances: tuple[GpuInstance, ...] = ()
    for profile, start in wishes:
        try:
            _, instances = mig.create(model, instances, profile, start)
        except mig.NoRoomError:
            continue
    return instances


def profiles_of(model: GpuModel, instances: tuple[GpuInstance, ...]) -> list[MigProfile]:
    found = [mig.profile_by_index(model, each.profile) for each in instances]
    return [each for each in found if each is not None]


@given(histories())
def test_instances_never_overlap_and_ids_are_unique(
    history: tuple[GpuModel, list[tuple[MigProfile, int | None]]],
) -> None:
    instances = made(*history)
    taken = [place for each in instances for place in range(each.start, each.start + each.size)]
    assert len(taken) == len(set(taken))
    assert len({each.id for each in instances}) == len(instances)


@given(histories())
def test_instances_never_exceed_what_the_gpu_has(
    history: tuple[GpuModel, list[tuple[MigProfile, int | None]]],
) -> None:
    model, wishes = history
    whole = next(each for each in model.mig_profiles if each.slices == 7)
    profiles = profiles_of(model, made(model, wishes))
    for engine in ("slices", "multiprocessors", "copy_engines", "decoders", "memory_mib"):
        assert sum(getattr(each, engine) for each in profiles) <= getattr(whole, engine)


@given(histories())
def test_capacity_is_what_can_be_made(
    history: tuple[GpuModel, list[tuple[MigProfile, int | None]]],
) -> None:
    model, wishes = history
    instances = made(model, wishes)
    for profile in model.mig_profiles:
        capacity = mig.remaining(model, instances, profile)
        after = made(model, [*wishes, *[(profile, None)] * capacity])
        assert len(after) == len(instances) + capacity
        assert mig.remaining(model, after, profile) == 0


@given(histories(), st.data())
def test_destroying_undoes_creating(
    history: tuple[GpuModel, list[tuple[MigProfile, int | None]]], data: st.DataObject
) -> None:
    model, wishes = history
    instances = made(model, wishes)
    profile = data.draw(st.sampled_from(model.mig_profiles))
    starts = list(mig.fitting(model, instances, profile))
    for start in starts:
        created, after = mig.create(model, instances, profile, start)
        assert tuple(each for each in after if each != created) == instances
    assert list(mig.fitting(model, instances, profile)) == starts


@each_model
def test_an_empty_gpu_takes_as_many_of_each_profile_as_it_says(model: GpuModel) -> None:
    for profile in model.mig_profiles:
        assert mig.remaining(model, (), profile) == profile.instances


@each_model
@pytest.mark.parametrize(
    "slices", [(4, 3), (3, 3), (2, 2, 2, 1), (4, 2, 1), (3, 2, 1, 1), (4, 1, 1, 1), (1,) * 7]
)
def test_combinations_of_the_user_guide_fit(model: GpuModel, slices: tuple[int, ...]) -> None:
    plain = {each.slices: each for each in model.mig_profiles if each.index in range(5)}
    wishes = [(plain[each], None) for each in slices]
    assert len(made(model, list(wishes))) == len(slices)


@each_model
def test_only_one_instance_has_media_extensions(model: GpuModel) -> None:
    extended = next(each for each in model.mig_profiles if each.name.endswith("+me"))
    assert len(made(model, [(extended, None)] * 7)) == 1


@each_model
def test_compute_instances_fill_a_gpu_instance_exactly(model: GpuModel) -> None:
    for profile in model.mig_profiles:
        for part in mig.compute_profiles(profile):
            instance = GpuInstance(id=0, profile=profile.index, start=0, size=profile.size)
            for count in range(part.instances):
                created, instance = mig.create_compute(instance, part, None)
                assert created.id == count
            with pytest.raises(mig.NoRoomError):
                mig.create_compute(instance, part, None)
