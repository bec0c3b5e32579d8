"""The parts of the plugin, each made from the settings; `main` connects them."""
