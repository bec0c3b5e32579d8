"""`python -m carina_dra` is the `carina` command."""

import sys

from carina_dra.cli.command import main

sys.exit(main())
