"""The controller beside kube-scheduler, on one real control plane with simulated nodes."""
