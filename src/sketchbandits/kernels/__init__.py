"""Compiled building blocks: the kernel decorator, small-matrix routines, counter-based random numbers, threads."""
