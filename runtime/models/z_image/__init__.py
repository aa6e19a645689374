"""runtime/models/z_image"""
