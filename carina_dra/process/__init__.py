"""What every long-running process of Carina needs, whatever it does.

    settings       settings from flags, the environment, a file and defaults
    logs           structured logs on standard error
    http_endpoint  /metrics, /healthz and /readyz

Nothing is imported here, so that a process loads only the modules that it uses.
"""
