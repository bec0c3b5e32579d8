"""Objects as rows of a meta.k8s.io/v1 Table, for `kubectl get`."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from carina_dra.kube.body import Body
from simulation.api_server.resources import Column, ServedResource, value_at


def table(served: ServedResource, objects: Iterable[Body], metadata: Body) -> Body:
    """Objects as a Table, with the metadata of their list."""
    names = ["Name", *(column.name for column in served.columns), "Age"]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": metadata,
        "columnDefinitions": [
            {
                "name": name,
                "type": "string",
                "format": "name" if name == "Name" else "",
                "description": "",
                "priority": 0,
            }
            for name in names
        ],
        "rows": [_row(served, body) for body in objects],
    }


def _row(served: ServedResource, body: Body) -> Body:
    metadata = body["metadata"]
    cells = [_cell(body, column) for column in served.columns]
    partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
    age = datetime.now(UTC) - datetime.fromisoformat(metadata["creationTimestamp"])
    return {
        "cells": [metadata["name"], *cells, duration(age)],
        "object": partial | {"metadata": metadata},
    }


def duration(age: timedelta) -> str:
    """An age as kubectl prints it: in its one or two largest units."""
    seconds = int(age.total_seconds())
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if hours < 3:
        return f"{minutes}m"
    return f"{hours}h" if hours < 48 else f"{days}d"


def _cell(body: Body, column: Column) -> str:
    value = value_at(body, column.path)
    if column.counted:
        return str(len(value) if isinstance(value, list) else 0)
    return "" if value is None else str(value)
