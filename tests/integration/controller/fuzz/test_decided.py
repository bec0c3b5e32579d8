"""What a tenant writes does not have the controller count for ever, or use up its memory."""

import subprocess
import sys

import pytest

from tests.length import seed, seeds


# Half a minute of computing, and many times that where others compute as well.
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("of_tenant", seeds(8), ids=lambda number: f"+{number - seed()}")
def test_each_decision_on_what_a_hostile_tenant_wrote_ends(of_tenant: int) -> None:
    program = (sys.executable, "-m", "tests.integration.controller.fuzz.decided")
    ended = subprocess.run(
        (*program, "--seed", str(of_tenant)), capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout) == (0, ""), ended.stderr[-4000:]
