"""runtime/models/sd15"""
