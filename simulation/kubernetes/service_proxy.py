"""Connects pods of a node to the API server, as kube-proxy does for the service `kubernetes`.

The service's address is the host's end of every pod's network link, so connections to it arrive on
the host. The proxy is a separate process, because a cluster can outlive its owner:

    python -I service_proxy.py KUBECONFIG ADDRESS
"""

import asyncio
import json
import socket
import sys
from pathlib import Path
from urllib.parse import urlsplit

_HTTPS = 443
_IP_FREEBIND = 15  # linux/in.h; the address exists only after the first pod has started
_CHUNK = 65536


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while chunk := await reader.read(_CHUNK):
            writer.write(chunk)
            await writer.drain()
    except ConnectionError:
        pass  # then the other direction also ends
    finally:
        writer.close()


async def _serve(address: str, server: str) -> None:
    target = urlsplit(server)

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            responses, requests = await asyncio.open_connection(target.hostname, target.port)
        except OSError as error:
            print(f"{server} cannot be reached: {error}", file=sys.stderr, flush=True)
            writer.close()
            return
        await asyncio.gather(_forward(reader, requests), _forward(responses, writer))

    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.IPPROTO_IP, _IP_FREEBIND, 1)
    listener.bind((address, _HTTPS))
    async with await asyncio.start_server(connect, sock=listener) as serving:
        await serving.serve_forever()


def main() -> None:
    """Forwards connections until the process is killed."""
    kubeconfig, address = sys.argv[1:]
    (cluster,) = json.loads(Path(kubeconfig).read_text())["clusters"]
    asyncio.run(_serve(address, cluster["cluster"]["server"]))


if __name__ == "__main__":
    main()
