"""The parts of a release that are only text."""
