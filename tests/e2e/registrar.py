"""Something between the kubelet and the plugin's registration socket that does not deliver all."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc

_SERVICE = "pluginregistration.Registration"


@contextmanager
def first_word_refused(socket: Path) -> Iterator[None]:
    """Takes the place of a registration socket, and refuses the first NotifyRegistrationStatus.

    All other calls go through to the plugin, whose socket has its name back in the end. A socket is
    found under whatever name it has, and the kubelet takes no notice of names with a dot.
    """
    hidden = socket.with_name(f".{socket.name}")
    socket.rename(hidden)
    refused = threading.Event()
    server = grpc.server(ThreadPoolExecutor(2))
    try:
        with grpc.insecure_channel(f"unix:{hidden}") as plugin:

            def forward(method: str, request: bytes) -> bytes:
                call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = plugin.unary_unary(
                    f"/{_SERVICE}/{method}"
                )
                return call(request, timeout=5)

            def get_info(request: bytes, _context: grpc.ServicerContext) -> bytes:
                return forward("GetInfo", request)

            def notify(request: bytes, context: grpc.ServicerContext) -> bytes:
                if not refused.is_set():
                    refused.set()
                    context.abort(grpc.StatusCode.UNAVAILABLE, "not now")
                return forward("NotifyRegistrationStatus", request)

            handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
                "GetInfo": grpc.unary_unary_rpc_method_handler(get_info),
                "NotifyRegistrationStatus": grpc.unary_unary_rpc_method_handler(notify),
            }
            server.add_generic_rpc_handlers(
                (grpc.method_handlers_generic_handler(_SERVICE, handlers),)
            )
            server.add_insecure_port(f"unix:{socket}")
            server.start()
            try:
                yield
            finally:
                server.stop(grace=None).wait()
    finally:
        hidden.rename(socket)
