"""CDI: the specification as values, what a claim's says, its folder, and the driver's files."""
