"""Hybrid CS-LB: each arm has a fit of its own, shrunk towards what its cluster predicts; how strongly is learned."""
