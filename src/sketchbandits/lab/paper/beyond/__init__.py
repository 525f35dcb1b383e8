"""Multi-scale CS-LB against the best rival with a guarantee, on sets of arms drawn from families by a seed.

`arm_sets` draws them, `plan` says what is played there, `rows` and `targets` what it came to, `tables` and `figures`
show it. Run by ``sketchbandits beyond``; docs/multiscale.md has the result.
"""
