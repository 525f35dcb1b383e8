"""Multi-scale CS-LB: bounds from rays, clusters and the whole space, intersected."""
