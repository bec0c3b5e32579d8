"""`python -m gpu_proof` is what `make gpu-proof` runs."""

import sys

from gpu_proof.main import main

sys.exit(main())
