"""The MPS daemons of claims: started with their limits, supervised, adopted and ended.

    setting         what is set in a daemon, and whether what it answers is that
    course          what is to be done next about a daemon

These decide, and are pure. The rest does it:

    mounts          the mounts of a daemon
    folder          its folder: pipes, logs and shared memory
    cgroups         its cgroup, which outlives this process and the container of this process
    installation    the programs of the installed driver, or why there is no MPS on this node
    control         a command to a daemon, and its answer
    launcher        the program that becomes a daemon
    control_daemon  a daemon: all of these together
    keeper          the thread that keeps a daemon as it is wanted
    supervisor      all of them
"""
