"""What the kubelet calls: DRA and plugin registration, over gRPC on unix sockets."""
