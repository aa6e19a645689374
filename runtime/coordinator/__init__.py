"""runtime/coordinator"""
