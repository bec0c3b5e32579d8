"""The plugin's own Node object: what it asks of the plugin, and what the plugin answers there."""
