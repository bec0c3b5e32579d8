"""What operators see: Events, metrics, logs, health over HTTP."""
