"""Sampling on tensors: noise, latent formats, guidance, areas, masks, previews, weights."""
