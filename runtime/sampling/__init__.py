"""runtime/sampling"""
