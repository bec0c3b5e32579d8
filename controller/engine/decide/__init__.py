"""What the controller decides, as pure functions of a snapshot."""
