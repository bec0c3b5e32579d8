"""YAML and JSON documents with Kubernetes objects, read strictly: text to values."""
