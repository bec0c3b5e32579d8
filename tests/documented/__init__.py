"""Pages of the docs as programs: their files are written, and their commands run and compared."""
