"""Looks at the pixels of what the demo model draws: `python -m training.quality`, `make demo-quality`."""
