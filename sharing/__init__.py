"""carina-sharing: the process that watches what processes use of shared GPUs.

    message      what the kubelet plugin wants watched, and what it is told (carina_dra.sharing)
    cgroup       from a process to its pod
    use          what pods have together of a GPU, and what their processes use of it
    exceeded     from samples to whether a use has exceeded
    violators    from samples to the processes that are to be ended
    observation  all of it: from a sample of all GPUs to a report

These decide, and are pure. The rest samples and serves:

    processes      who uses a GPU, by NVML, and of which pod a process is, by procfs
    ending         the end of a process, and of no other one
    change_log     what of it goes into the log
    metrics        counts of it
    sampling       the thread that samples while a GPU is shared
    socket_server  the socket that the plugin connects to
    namespaces     whether this process sees those of the node
    wanted_file    what is to be watched, on disk
"""
