"""The subcommands of `carina` that look at this node, a module each."""
