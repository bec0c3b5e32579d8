"""Claims with MPS daemons, which carina-sharing runs."""
