"""The pure parts of the demo."""
