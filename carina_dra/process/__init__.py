"""What every long-running process of Carina needs, whatever it does.

    settings       settings from flags, the environment, a file and defaults
    logs           structured logs on standard error
    http_endpoint  /metrics, /healthz and /readyz
    termination    when a process ends
    program        from the arguments to the exit status, with all of these

Nothing is imported here, so that a process loads only the modules that it uses.
"""
