"""Lists: complete, of one version, chosen by selectors."""

import pytest

from carina_dra.kube.api_resource import CONFIG_MAPS, RESOURCE_SLICES
from carina_dra.kube.client import Client, Selection
from carina_dra.kube.errors import BadRequest
from tests.samples.objects import config_map, resource_slice


def names(api: Client, selection: Selection, **options: int) -> list[str]:
    items = api.list(CONFIG_MAPS, selection, **options).items
    return [item["metadata"]["name"] for item in items if item["data"] == {"color": "blue"}]


def test_an_empty_list_has_a_version_to_watch_from(api: Client, namespace: str) -> None:
    listing = api.list(CONFIG_MAPS, Selection(namespace, labels="none=such"))
    assert listing.items == []
    assert int(listing.resource_version) > 0


@pytest.mark.parametrize("page_size", [0, 1, 2, 3, 7, 100])
def test_pages_add_up_to_the_whole(api: Client, namespace: str, page_size: int) -> None:
    expected = [f"sample-{number}" for number in range(7)]
    for name in expected:
        api.create(CONFIG_MAPS, config_map(namespace, name))
    assert names(api, Selection(namespace), page_size=page_size) == expected


def test_items_say_what_they_are(api: Client, namespace: str) -> None:
    created = api.create(CONFIG_MAPS, config_map(namespace))
    assert created in api.list(CONFIG_MAPS, Selection(namespace)).items


def test_a_list_is_of_one_namespace_or_of_all(api: Client, namespace: str) -> None:
    api.create(CONFIG_MAPS, config_map(namespace, "here"))
    api.create(CONFIG_MAPS, config_map("default", f"{namespace}-there"))
    assert names(api, Selection(namespace)) == ["here"]
    assert {"here", f"{namespace}-there"} <= set(names(api, Selection()))
    api.delete(CONFIG_MAPS, f"{namespace}-there", namespace="default")


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("tier=gold", ["a"]),
        ("tier==gold", ["a"]),
        ("tier!=gold", ["b", "c"]),
        ("tier", ["a", "b"]),
        ("!tier", ["c"]),
        ("tier in (gold, silver)", ["a", "b"]),
        ("tier notin (gold)", ["b", "c"]),
        ("tier,zone=1", ["b"]),
        ("tier in (gold,silver),zone!=1", ["a"]),
        ("", ["a", "b", "c"]),
    ],
)
def test_label_selectors(api: Client, namespace: str, selector: str, expected: list[str]) -> None:
    labels: dict[str, dict[str, str]] = {
        "a": {"tier": "gold"},
        "b": {"tier": "silver", "zone": "1"},
        "c": {},
    }
    for name, own in labels.items():
        api.create(CONFIG_MAPS, config_map(namespace, name, labels=own))
    assert names(api, Selection(namespace, labels=selector)) == expected


def test_fields_of_slices_can_be_selected(api: Client, namespace: str) -> None:
    mine = resource_slice(f"{namespace}-1", node=f"{namespace}-n1")
    other_node = resource_slice(f"{namespace}-2", node=f"{namespace}-n2")
    other_driver = resource_slice(f"{namespace}-3", node=f"{namespace}-n1", driver="x.example.com")
    for body in (mine, other_node, other_driver):
        api.create(RESOURCE_SLICES, body)
    fields = f"spec.nodeName={namespace}-n1,spec.driver=gpu.example.com"
    found = api.list(RESOURCE_SLICES, Selection(fields=fields)).items
    for body in (mine, other_node, other_driver):
        api.delete(RESOURCE_SLICES, body["metadata"]["name"])
    assert [body["metadata"]["name"] for body in found] == [f"{namespace}-1"]


def test_the_name_can_be_selected(api: Client, namespace: str) -> None:
    for name in ("a", "b"):
        api.create(CONFIG_MAPS, config_map(namespace, name))
    assert names(api, Selection(namespace, fields="metadata.name=b")) == ["b"]


def test_other_fields_cannot(api: Client, namespace: str) -> None:
    with pytest.raises(BadRequest, match=r'"data\.color" is not a known field selector'):
        api.list(CONFIG_MAPS, Selection(namespace, fields="data.color=blue"))


def test_a_selection_is_deleted_at_once(api: Client, namespace: str) -> None:
    api.create(CONFIG_MAPS, config_map(namespace, "a", labels={"old": "yes"}))
    api.create(CONFIG_MAPS, config_map(namespace, "b"))
    api.delete_collection(CONFIG_MAPS, Selection(namespace, labels="old"))
    assert names(api, Selection(namespace)) == ["b"]
