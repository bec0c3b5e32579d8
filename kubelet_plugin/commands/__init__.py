"""The subcommands of `carina` that look at GPUs, of this node or of the cluster; a module each."""
