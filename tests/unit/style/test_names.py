"""A public class has one meaning: a reader who greps for its name finds one definition."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[3]
_PACKAGES: Final = ("carina_dra", "controller", "gpu_proof", "kubelet_plugin", "sharing")
_GENERATED: Final = "pb"
_TWICE: Final = {
    "GpuConfig": "NVIDIA's kind has the name of ours",
    "GpuSharing": "a part of it",
    "MigDeviceConfig": "NVIDIA's kind has the name of ours",
    "Node": "what the allocator needs of a node, and the kind in files, whose name errors show",
    "Queue": "the engine's queue, and the API's kind, whose name is that of the class",
    "TimeSlicingConfig": "NVIDIA's kind has the name of ours",
}


def _names(source: Path) -> Iterator[str]:
    for node in ast.parse(source.read_text()).body:
        match node:
            case ast.ClassDef(name=name):
                yield name
            case ast.AnnAssign(target=ast.Name(id=name), annotation=ast.Name(id="TypeAlias")):
                yield name
            case _:
                pass


def test_no_public_class_name_stands_twice_without_a_reason() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for package in _PACKAGES:
        for source in sorted((_ROOT / package).rglob("*.py")):
            if _GENERATED not in source.parts:
                for name in _names(source):
                    found[name].append(str(source.relative_to(_ROOT)))
    twice = {
        name: modules
        for name, modules in found.items()
        if len(modules) > 1 and not name.startswith("_")
    }
    assert {name: of for name, of in twice.items() if name not in _TWICE} == {}
    assert _TWICE.keys() == twice.keys(), "a reason for a name that stands once"
