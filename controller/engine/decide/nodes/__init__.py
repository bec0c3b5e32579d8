"""Which nodes a pod fits, and what it costs there."""
