"""Fixtures that every suite may ask for."""

from hypothesis import HealthCheck, settings

pytest_plugins = ("tests.kubernetes.fixtures",)

# How long an example takes says more about the machine, which may be busy, than about the code.
settings.register_profile("carina", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("carina")
