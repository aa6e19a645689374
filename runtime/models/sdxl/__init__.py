"""runtime/models/sdxl"""
