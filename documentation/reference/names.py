"""docs/reference/names.md: labels, annotations, conditions, finalizers, gates and taints.

The controller's are the constants of controller/names.py; what follows the last underscore of a
constant's name is its kind. Other constants of the module are in `NO_NAMES`.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Final, get_args

from carina_dra.node_keys import NodeKeys
from controller import names
from controller.engine.model import queue
from documentation import markdown
from documentation.markdown import code, paragraph, sentence, summary, table
from documentation.reference.docstrings import constants
from kubelet_plugin.inventory.compute_mode import COMPUTE_MODE
from kubelet_plugin.inventory.gpu import REPAIR_FAILED
from kubelet_plugin.inventory.health import GpuProblem
from kubelet_plugin.inventory.held_mode import HeldMode

_KINDS: Final = {
    "ANNOTATION": "annotation",
    "FINALIZER": "finalizer",
    "GATE": "scheduling gate",
    "LABEL": "label",
    "PROTECTION": "finalizer",
    "TAINT": "device taint",
}
NO_NAMES: Final = frozenset({"CONTROLLER", "GROUP", "RESERVATIONS"})
"""Constants of controller/names.py that are not on objects as a key, a finalizer or a gate."""
MANIFESTS: Final = (
    ("label", "carina.dev/metrics", "On a namespace, `scrape`: its pods may read metrics."),
    ("label", "carina.dev/requires", "On a DeviceClass, `admin-access`: claims need admin access."),
    ("label", "carina.dev/role", "On the plugin's pods, `kubelet-plugin`: a policy finds them."),
    (
        "label",
        "scheduling.carina.dev/shared-claims",
        "On a namespace, `allowed`: in exclusive mode, its pods may share claims of other drivers.",
    ),
    (
        "label",
        "resource.kubernetes.io/admin-access",
        'On a namespace, `"true"`: its claims may have admin access (Kubernetes).',
    ),
)
"""What the policies and network policies of the manifests use: kind, name, meaning."""


def page() -> str:
    """The page, in Markdown."""
    return markdown.page(
        "Labels, annotations and other names",
        "controller/names.py and the plugin",
        paragraph(
            "What Carina reads and writes on objects. `DRIVER` is the driver's name, by default "
            "`gpu.carina.dev`."
        ),
        table(("kind", "name", "meaning"), sorted(chain(_controller(), _plugin(), _manifests()))),
    )


def _controller() -> Iterator[tuple[str, str, str]]:
    of_queue = constants(queue)["QUEUE_LABEL"]
    documented = {"QUEUE_LABEL": of_queue, **constants(names)}
    for constant, docstring in documented.items():
        if constant not in NO_NAMES:
            kind = _KINDS[constant.rpartition("_")[2]]
            yield kind, code(getattr(names, constant)), sentence(summary(docstring))


def _manifests() -> Iterator[tuple[str, str, str]]:
    for kind, name, meaning in MANIFESTS:
        yield kind, code(name), meaning


def _plugin() -> Iterator[tuple[str, str, str]]:
    keys = NodeKeys("DRIVER")
    for name, member in vars(NodeKeys).items():
        if isinstance(member, property):
            kind = {"condition": "condition", "taint": "device taint"}
            of_name = kind.get(name.rpartition("_")[2], "annotation")
            yield of_name, code(getattr(keys, name)), sentence(summary(member.__doc__))
    for problem in get_args(GpuProblem):
        yield "device taint", code(f"DRIVER/{problem.state}"), sentence(summary(problem.__doc__))
    compute_mode = "The compute mode of the GPU lets fewer processes compute than the device needs."
    yield "device taint", code(f"DRIVER/{COMPUTE_MODE}"), compute_mode
    yield "device taint", code(f"DRIVER/{HeldMode.state}"), sentence(summary(HeldMode.__doc__))
    repair = "What a prepared claim needs could not be restored; further claims would wait for it."
    yield "device taint", code(f"DRIVER/{REPAIR_FAILED}"), repair
