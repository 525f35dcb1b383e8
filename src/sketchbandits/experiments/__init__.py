"""Experiments on the CS-LB paper's data: `paper` holds its data sets, `compare` plays all policies on one of them."""
