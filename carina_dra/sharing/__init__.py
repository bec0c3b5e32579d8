"""What the kubelet plugin and carina-sharing agree on: the socket between them."""
