"""runtime/models/flux"""
