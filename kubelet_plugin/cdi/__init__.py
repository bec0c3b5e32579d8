"""CDI: specs as values, the spec of a claim, the folder of specs, and the driver's files."""
