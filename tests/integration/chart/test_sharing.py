"""Where the chart runs carina-sharing."""

from typing import Any

import pytest

from tests.integration.chart.conftest import Render

_ON_SHARES = {"name": "shares", "nodeSelector": {"pool": "shares"}}
_OFF_SHARES = {"name": "whole", "nodeSelector": {"pool": "whole"}}


def objects(render: Render, kind: str, values: dict[str, Any], *flags: str) -> dict[str, Any]:
    """The objects of a kind that are for carina-sharing, by name."""
    return {
        body["metadata"]["name"]: body
        for body in render(values, *flags)
        if body["kind"] == kind and "-sharing" in body["metadata"]["name"]
    }


def plugin(render: Render, values: dict[str, Any], name: str) -> dict[str, Any]:
    (spec,) = (
        body["spec"]["template"]["spec"]
        for body in render(values)
        if body["kind"] == "DaemonSet" and body["metadata"]["name"] == name
    )
    found: dict[str, Any] = spec
    return found


def of(kinds: str | list[str]) -> dict[str, Any]:
    return {"kubeletPlugin": {"settings": {"device_kinds": kinds}}}


@pytest.mark.parametrize("values", [{}, of("gpu,monitor"), of(["gpu", "mig"])])
def test_without_shares_there_is_nothing_of_it(render: Render, values: dict[str, Any]) -> None:
    for kind in ("DaemonSet", "ServiceAccount", "RoleBinding"):
        assert objects(render, kind, values) == {}


@pytest.mark.parametrize("kinds", ["share", "gpu, share,monitor", ["gpu", "share"]])
def test_with_shares_it_runs_where_the_plugin_does(render: Render, kinds: str | list[str]) -> None:
    values = of(kinds)
    values["kubeletPlugin"] |= {
        "nodeSelector": {"a": "b"},
        "nodeSelection": "nfd",
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
    }
    found = objects(render, "DaemonSet", values)
    assert list(found) == ["carina-sharing"]
    spec = found["carina-sharing"]["spec"]["template"]["spec"]
    own = plugin(render, values, "carina-kubelet-plugin")
    for field in ("nodeSelector", "affinity", "tolerations", "priorityClassName"):
        assert spec[field] == own[field]
    assert list(objects(render, "ServiceAccount", values)) == ["carina-sharing"]


def test_it_runs_on_the_nodes_alone_whose_settings_have_shares(render: Render) -> None:
    values = {
        "kubeletPlugin": {
            "nodeSettings": [
                {**_OFF_SHARES, "settings": {"device_kinds": "gpu"}},
                {**_ON_SHARES, "settings": {"device_kinds": "gpu,share"}},
            ]
        }
    }
    found = objects(render, "DaemonSet", values)
    assert list(found) == ["carina-sharing-shares"]
    spec = found["carina-sharing-shares"]["spec"]["template"]["spec"]
    own = plugin(render, values, "carina-kubelet-plugin-shares")
    assert (spec["nodeSelector"], spec["affinity"]) == (own["nodeSelector"], own["affinity"])


def test_an_entry_may_take_shares_from_its_nodes(render: Render) -> None:
    values = of("gpu,share")
    values["kubeletPlugin"]["nodeSettings"] = [
        {**_OFF_SHARES, "settings": {"device_kinds": "gpu"}},
        {**_ON_SHARES, "settings": {"log_level": "debug"}},
    ]
    assert set(objects(render, "DaemonSet", values)) == {"carina-sharing", "carina-sharing-shares"}


def test_it_runs_where_some_gpus_alone_are_shared(render: Render) -> None:
    values = of("gpu,monitor")
    rules = [{"minor": 0, "kinds": ["mig"]}, {"minor": 7, "kinds": ["share"]}]
    values["kubeletPlugin"]["settings"]["device_kinds_by_gpu"] = rules
    assert list(objects(render, "DaemonSet", values)) == ["carina-sharing"]


def test_its_value_says_otherwise(render: Render) -> None:
    assert objects(render, "DaemonSet", {**of("share"), "sharing": {"enabled": False}}) == {}
    assert list(objects(render, "DaemonSet", {"sharing": {"enabled": True}})) == ["carina-sharing"]


@pytest.mark.parametrize(("values", "told"), [({}, None), ({"watchdog": "kill"}, "kill")])
def test_it_is_told_what_to_do_with_violators(
    render: Render, values: dict[str, Any], told: str | None
) -> None:
    (body,) = objects(render, "DaemonSet", {**of("share"), "sharing": values}).values()
    (main,) = body["spec"]["template"]["spec"]["containers"]
    found = {variable["name"]: variable["value"] for variable in main["env"]}
    assert found.get("CARINA_WATCHDOG") == told


def test_it_sees_the_hosts_processes_and_has_no_way_to_the_api(render: Render) -> None:
    (body,) = objects(render, "DaemonSet", of("share")).values()
    spec = body["spec"]["template"]["spec"]
    assert spec["hostPID"] is True
    assert spec["automountServiceAccountToken"] is False
    assert spec["serviceAccountName"] == "carina-sharing"
    (account,) = objects(render, "ServiceAccount", of("share")).values()
    assert account["automountServiceAccountToken"] is False
    bound = [
        subject["name"]
        for rendered in render(of("share"))
        if rendered["kind"] in ("RoleBinding", "ClusterRoleBinding")
        for subject in rendered["subjects"]
    ]
    assert "carina-sharing" not in bound


def test_it_has_the_plugins_folder_and_driver(render: Render) -> None:
    values = of("share") | {"driverName": "gpu.nvidia.com"}
    values["kubeletPlugin"] |= {"kubeletDir": "/data/kubelet", "driverRoot": "/opt/nvidia"}
    (body,) = objects(render, "DaemonSet", values).values()
    spec = body["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    environment = {variable["name"]: variable["value"] for variable in container["env"]}
    assert environment.items() >= {
        ("CARINA_DRIVER_NAME", "gpu.nvidia.com"),
        ("CARINA_KUBELET_ROOT", "/data/kubelet"),
        ("CARINA_HOST_DRIVER_ROOT", "/opt/nvidia"),
    }
    own = plugin(render, values, "carina-kubelet-plugin")
    mounts = {mount["name"]: mount for mount in own["containers"][0]["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in own["volumes"]}
    own_mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
    assert own_mounts.keys() == {"plugin", "dev", "driver", "cgroup"}
    # So that the container runtime sees the mounts of MPS daemons.
    assert own_mounts["plugin"].pop("mountPropagation") == "Bidirectional"
    for name, mount in own_mounts.items():
        assert mount == mounts[name]
    for volume in spec["volumes"]:
        assert volume == volumes[volume["name"]]


def test_openshift_admits_it(render: Render) -> None:
    flag = "--api-versions=security.openshift.io/v1"
    (binding,) = objects(render, "RoleBinding", of("share"), flag).values()
    assert binding["roleRef"]["name"] == "system:openshift:scc:privileged"
    assert objects(render, "RoleBinding", {}, flag) == {}
