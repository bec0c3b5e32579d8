"""Kubernetes objects, as the engine's values."""
