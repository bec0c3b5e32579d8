"""One fake for each port of the product, for tests of more than one suite."""
