"""Handlers, one module per noun. `app.py` lists which path each one has."""
