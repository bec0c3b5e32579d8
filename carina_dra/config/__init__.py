"""Carina's own API kinds: what users write about devices."""
