"""The `carina` command: its dispatcher, its output, and the subcommands of the library."""
