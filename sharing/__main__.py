"""`python -m sharing` is `carina-sharing`."""

from sharing.main import main

main()
