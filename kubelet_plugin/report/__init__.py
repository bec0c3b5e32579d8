"""What operators see of the plugin: Events and metrics."""
