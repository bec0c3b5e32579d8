"""The kubelet plugin, which offers a node's GPUs through Dynamic Resource Allocation (DRA)."""
