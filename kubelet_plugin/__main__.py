"""`python -m kubelet_plugin` is `carina-kubelet-plugin`."""

from kubelet_plugin.main import main

main()
