"""The gRPC services that the kubelet calls on unix sockets: DRA and plugin registration."""
