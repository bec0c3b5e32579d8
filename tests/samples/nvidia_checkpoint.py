"""The checkpoint of NVIDIA's DRA driver, as that driver writes it."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

COMPLETED, STARTED = "PrepareCompleted", "PrepareStarted"


def result(device: object, driver: str, **others: Any) -> dict[str, Any]:
    """An allocation result, as in the status of a claim."""
    return {"request": "gpu", "driver": driver, "pool": "node-1", "device": device, **others}


def entry(*results: Mapping[str, Any], state: str | None = COMPLETED) -> dict[str, Any]:
    """A claim; version 1 has no state."""
    devices = {"results": list(results), "config": []}
    content = {
        "status": {"allocation": {"devices": devices}},
        "preparedDevices": [{"devices": [{"device": each["device"]} for each in results]}],
    }
    return content if state is None else {**content, "checkpointState": state}


def checkpoint(
    claims: Mapping[str, Mapping[str, Any]],
    *,
    boot_id: str | None = "boot-1",
    versions: Sequence[str] = ("v1", "v2"),
) -> bytes:
    """The file's content, in some of its versions."""
    content: dict[str, Any] = {"checksum": 1465013290}
    if "v1" in versions:
        of_v1 = {
            uid: {name: value for name, value in claim.items() if name != "checkpointState"}
            for uid, claim in claims.items()
            if claim.get("checkpointState", COMPLETED) == COMPLETED
        }
        content["v1"] = {"preparedClaims": of_v1}
    if "v2" in versions:
        boot = {} if boot_id is None else {"nodeBootID": boot_id}
        content["v2"] = {"checksum": 3921887, "preparedClaims": dict(claims), **boot}
    return json.dumps(content).encode()
