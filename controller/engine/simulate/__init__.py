"""What would happen: the engine in virtual time, on a scenario or from a snapshot on.

`scenario` is what people write, `trace` what is simulated. `simulator` runs a trace and gives a
`record` of all that happened; `report` and `picture` show it. All of it is pure: random numbers
come from the seed of the scenario.
"""
