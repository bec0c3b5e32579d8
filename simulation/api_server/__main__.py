"""Runs the embedded API until it is interrupted: `python -m simulation.api_server`."""

import argparse
import signal
from pathlib import Path

from simulation.api_server.server import ApiServer


def main() -> None:
    """Serves the API and prints its address."""
    parser = argparse.ArgumentParser(prog="python -m simulation.api_server", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="port on loopback (0: a free one)")
    parser.add_argument("--kubeconfig", type=Path, help="file to write for kubectl")
    arguments = parser.parse_args()
    signals = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    with ApiServer(port=arguments.port) as server:
        if arguments.kubeconfig:
            server.write_kubeconfig(arguments.kubeconfig)
            print(f"export KUBECONFIG={arguments.kubeconfig.resolve()}")
        print(f"{server.url}  (Ctrl-C stops it)", flush=True)
        signal.sigwait(signals)


main()
