"""The controller on a real control plane."""
