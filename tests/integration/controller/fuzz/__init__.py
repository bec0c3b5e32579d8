"""A hostile tenant on a real control plane, beside tenants who only want their pods to run.

`generator` says what the hostile tenant writes, and `tenant` writes it. `bystander` and `owner` are
the other tenants. `judge` knows nothing of what was written: it counts devices of allocations.
"""
