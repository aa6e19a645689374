"""runtime/models/sd3"""
