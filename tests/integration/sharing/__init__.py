"""The whole process carina-sharing, with real processes in real cgroups and simulated GPUs."""
