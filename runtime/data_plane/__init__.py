"""runtime/data_plane"""
