"""Upstream's own code as an oracle: what it answers, Carina has to answer."""
