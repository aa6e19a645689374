"""server/routes"""
