"""A stand-in for NVIDIA's nvidia-cuda-mps-control: no GPU, and real processes and sockets.

It is a file of its own, which a simulated node has as a program. With `-f` or `-d` it is a control
daemon, which has a Unix socket `control` in $CUDA_MPS_PIPE_DIRECTORY, and otherwise it sends the
commands on its standard input to that daemon and prints the answers, as those of v2 do (NVIDIA
Multi-Process Service, "nvidia-cuda-mps-control"). In place of a CUDA program's first call, the
command `connect` has the daemon start a server, and says with which limits.

Every command that a daemon gets is a line in run/mps-commands below the node's root, and what is in
run/mps-faults there is how it fails: a JSON object from the name of the folder above the pipes, or
"*", to an object with

    slow      seconds from the start to the socket
    refuse    words with which the daemon ends at its start
    hang      the command that has the daemon answer nothing, or "*"
    slow_command  the command before which it sleeps for a second
    die       the command at which it ends without an answer
    answers   an object from commands to answers
"""

import fcntl
import json
import os
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
COMMANDS, FAULTS = "run/mps-commands", "run/mps-faults"
_POLL = 0.02
_NO_DAEMON = "Cannot find MPS control daemon process"


class MpsControlStandIn:
    """A control daemon."""

    def __init__(self, pipes: Path) -> None:
        self._pipes = pipes
        self._limits: dict[str, str] = {}
        self._percentage = 100.0
        self._servers: dict[int, str] = {}
        """What each was started with, by its PID."""

    def serve(self) -> None:
        """Answers commands until `quit`."""
        if refusal := self._fault("refuse"):
            sys.exit(refusal)
        lock = (self._pipes / "control_lock").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            sys.exit("An instance of this daemon is already running")
        time.sleep(self._fault("slow") or 0)
        path = self._pipes / "control"
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            path.chmod(0o777)
            listener.listen(64)
            (self._pipes / "nvidia-cuda-mps-control.pid").write_text(f"{os.getpid()}\n")
            self._record("started")
            while True:
                connection, _ = listener.accept()
                with (
                    connection,
                    connection.makefile("r") as lines,
                    suppress(OSError),  # the client is gone
                ):
                    for line in lines:
                        connection.sendall(f"{self._answer(line.strip())}\0".encode())

    def _answer(self, command: str) -> str:
        self._record(command)
        while self._fault("hang") in (command, "*"):
            time.sleep(_POLL)
        if self._fault("slow_command") == command:
            time.sleep(1)
        if self._fault("die") == command:
            os._exit(1)
        answers: dict[str, str] = self._fault("answers") or {}
        known = self._run(command)
        return answers.get(command, known)

    def _run(self, command: str) -> str:
        self._reap()
        match command.split():
            case ["quit", *_]:
                for server in self._servers:
                    os.kill(server, signal.SIGKILL)
                self._record("ended")
                os._exit(0)
            case ["get_server_list"]:
                return "".join(f"{server}\n" for server in self._servers)
            case ["start_server", "-uid", _] | ["connect"]:
                return f"{self._server()} {self._servers[self._server()]}\n"
            case ["get_client_list", _] | ["ps"]:
                return ""
            case ["set_default_active_thread_percentage", percentage]:
                self._percentage = float(percentage)
                return f"{self._percentage}\n"
            case ["get_default_active_thread_percentage"]:
                return f"{self._percentage}\n"
            case ["set_default_device_pinned_mem_limit", device, limit]:
                self._limits[device] = limit
                return ""
            case ["get_default_device_pinned_mem_limit", device]:
                return f"{_rounded(self._limits.get(device, 'Unlimited'))}\n"
            case _:
                return f"Invalid command: {command}\n"

    def _server(self) -> int:
        """The server of all users, which is started when there is none."""
        if not self._servers:
            limits = ",".join(f"{device}={limit}" for device, limit in sorted(self._limits.items()))
            server = os.fork()
            if server == 0:
                while True:
                    signal.pause()
            self._servers[server] = f"{limits or 'unlimited'} {self._percentage}"
        return next(iter(self._servers))

    def _reap(self) -> None:
        for server in list(self._servers):
            if os.waitpid(server, os.WNOHANG) != (0, 0):
                del self._servers[server]

    def _fault(self, name: str) -> Any:
        try:
            faults = json.loads((ROOT / FAULTS).read_bytes())
        except FileNotFoundError:
            return None
        return faults.get(self._pipes.parent.name, faults.get("*", {})).get(name)

    def _record(self, command: str) -> None:
        line = {"time": time.monotonic(), "of": self._pipes.parent.name, "pid": os.getpid()}
        text = json.dumps(
            {**line, "command": command, "devices": os.environ.get("CUDA_VISIBLE_DEVICES")}
        )
        with (ROOT / COMMANDS).open("a") as file:
            file.write(f"{text}\n")


def _rounded(limit: str) -> str:
    """A limit as drivers say it: from 1 GiB on in whole GiB, rounded down."""
    mib = int(limit[:-1]) if limit.endswith("M") else 0
    return f"{mib // 1024}G" if mib >= 1024 else limit


def ask(pipes: Path) -> None:
    """Sends the commands on the standard input to the daemon, and prints its answers."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(pipes / "control"))
        except OSError:
            sys.exit(_NO_DAEMON)
        for line in sys.stdin:
            connection.sendall(f"{line.strip()}\n".encode())
            answer = b""
            while not answer.endswith(b"\0"):
                part = connection.recv(65536)
                if not part:
                    sys.exit(0 if line.startswith("quit") else "Failed to read from MPS control")
                answer += part
            sys.stdout.write(answer[:-1].decode())
            sys.stdout.flush()


def main(arguments: list[str]) -> None:
    """Is the daemon or its client."""
    pipes = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"))
    if "-d" in arguments:
        if os.fork():
            return
        os.setsid()
    if "-d" in arguments or "-f" in arguments:
        log = Path(os.environ.get("CUDA_MPS_LOG_DIRECTORY", "/var/log/nvidia-mps"))
        with (log / "control.log").open("a") as file:
            file.write(f"Start of the control daemon {os.getpid()}\n")
        MpsControlStandIn(pipes).serve()
    else:
        ask(pipes)


if __name__ == "__main__":
    main(sys.argv[1:])
