"""Generated from proto/ by `make proto`: messages of the kubelet's gRPC."""
