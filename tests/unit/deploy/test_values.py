"""The chart's values, and what is generated from them."""

import json

import pytest
import yaml
from pydantic import ValidationError

from controller.settings import Settings
from deploy.documents import readme, values_schema, values_yaml
from deploy.schema import inlined
from deploy.values import Values
from kubelet_plugin.settings import PluginSettings


def test_values_yaml_has_the_defaults_of_the_types() -> None:
    assert Values.model_validate(yaml.safe_load(values_yaml())) == Values()


def test_every_value_has_a_description_once() -> None:
    text = values_yaml()
    commented = [line for line in text.splitlines() if line.lstrip().startswith("# .")]
    assert commented == []
    assert readme().count("`kubeletPlugin.nodeSettings`") == 1


@pytest.mark.parametrize(
    ("part", "of_process"), [("kubeletPlugin", PluginSettings), ("controller", Settings)]
)
def test_settings_are_those_of_the_process_less_those_that_the_chart_makes(
    part: str, of_process: type[PluginSettings] | type[Settings]
) -> None:
    schema = json.loads(values_schema())
    settings = schema["properties"][part]["properties"]["settings"]

    made = set(of_process.model_fields) - set(settings["properties"])
    assert {"driver_name", "http_address"} < made
    assert "log_level" in settings["properties"]
    assert settings["additionalProperties"] is False


def test_objects_with_known_fields_admit_no_others() -> None:
    def open_objects(node: object, path: str = "") -> list[str]:
        if not isinstance(node, dict):
            return []
        found = [path] if "properties" in node and node.get("additionalProperties", True) else []
        return found + [
            each for key, value in node.items() for each in open_objects(value, f"{path}/{key}")
        ]

    assert open_objects(json.loads(values_schema())) == []


def test_patterns_of_python_are_written_for_go() -> None:
    schema = {"properties": {"pattern": {"type": "string", "pattern": r"^[a-z]+\Z"}}}
    assert inlined(schema) == {"properties": {"pattern": {"type": "string", "pattern": "^[a-z]+$"}}}


def test_unknown_values_are_refused() -> None:
    with pytest.raises(ValidationError, match="kubeletPlugin"):
        Values.model_validate({"kubeletPlugin": {"colour": "red"}})
