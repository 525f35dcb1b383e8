"""Fits that several policies share: an exact ridge fit, and one on a matrix sketch."""
