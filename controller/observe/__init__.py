"""Objects of Kubernetes as values of the engine, and the mirror that keeps its state up to date."""
