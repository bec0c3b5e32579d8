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
FILES: Final = frozenset({SOCKET, NEW_SOCKET, WANTED, NEW_WANTED, DAMAGED})
"""All of them: they do not say that the plugin has run."""
