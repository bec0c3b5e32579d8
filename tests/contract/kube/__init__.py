"""What our clients rely on, of any Kubernetes API: seen on the embedded one and on the real one.

Every test that takes `api` runs twice. So the client is known to work on the real API server, and
the embedded API cannot drift from it.
"""
