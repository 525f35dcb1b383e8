"""The CS-LB paper reproduced: its experiments, its claims with verdicts, and comparisons beyond it."""
