"""CS-LB: one lossless ridge fit per cluster of arms."""
