"""Sampling on tensors: noise, latent formats, guidance, previews, weighted text."""
