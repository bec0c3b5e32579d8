"""From devices to ResourceSlices: the pool, the writes that bring it about, and who makes them."""
