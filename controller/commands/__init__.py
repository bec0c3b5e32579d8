"""The subcommands of `carina` that read a cluster or a file with one, a module each."""
