"""The files of carina-sharing in the folder of the kubelet plugin."""

from typing import Final

SOCKET: Final = "sharing.sock"
NEW_SOCKET: Final = "sharing.new"
"""The socket before it takes the place of an older one."""
WANTED: Final = "sharing.json"
"""The last message of the plugin."""
NEW_WANTED: Final = "sharing.json.new"
DAMAGED: Final = "sharing.json.damaged"
"""One that could not be read, for an administrator to look at."""
MPS: Final = "mps"
"""The folder with a folder for each MPS daemon, named by the UID of its claim."""
MPS_PIPES, MPS_LOGS, MPS_SHM = "ipc", "log", "shm"
"""What the folder of a daemon has: its pipes and what is /dev/shm for it and its clients, which
containers get too, and its logs. A longer name would leave no room for the sockets in k0s."""
MPS_LOCK: Final = "mps.lock"
"""Held by the process that supervises the daemons."""
MPS_DRIVER: Final = "mps_driver"
"""The folder with links to the programs and libraries of the driver that daemons have."""
FILES: Final = frozenset(
    {SOCKET, NEW_SOCKET, WANTED, NEW_WANTED, DAMAGED, MPS, MPS_LOCK, MPS_DRIVER}
)
"""All of them: they do not say that the plugin has run."""
