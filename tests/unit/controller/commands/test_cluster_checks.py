"""What `carina doctor` says of an API server that does not answer a check."""

import pytest

from carina_dra.cli.diagnosis import Diagnosis, Grade
from carina_dra.kube.client import Client
from carina_dra.kube.connection import Connection
from carina_dra.kube.errors import (
    ApiError,
    ApiOperation,
    Forbidden,
    PathNotFound,
    Unauthorized,
    Unreachable,
)
from controller.commands.cluster_checks import answered
from controller.commands.installation import Installation

_LIST = ApiOperation("list", "resourceslices")


@pytest.mark.parametrize(
    ("error", "grade", "remedy"),
    [
        (Forbidden(_LIST, "no"), Grade.WARN, "more permissions"),
        (Unauthorized(_LIST, "no"), Grade.BAD, "renew the credentials"),
        (PathNotFound(_LIST, "no"), Grade.BAD, "see that the API server serves it"),
        (Unreachable(_LIST, "no"), Grade.BAD, "can be reached from here"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_refusal_has_its_own_remedy(error: ApiError, grade: Grade, remedy: str) -> None:
    def look(_: Installation) -> list[Diagnosis]:
        raise error

    with Client(Connection("http://127.0.0.1:1")) as client:
        cluster = Installation(client, "gpu.carina.dev", "carina-system", "p", "c", 1.0)
        [finding] = answered(look, cluster)

    assert finding.grade is grade
    assert remedy in finding.remedy
