"""MPS daemons, in parts."""
