"""Device metadata (KEP-5304): files that tell containers which devices they have."""
