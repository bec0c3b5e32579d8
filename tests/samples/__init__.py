"""Values that tests of more than one suite are written with."""
