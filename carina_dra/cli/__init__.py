"""The `carina` command, and those of its subcommands that belong to the library."""
