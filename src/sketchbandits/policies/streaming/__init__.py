"""Multi-scale CS-LB for contexts that arrive each round: clusters are found in the stream."""
