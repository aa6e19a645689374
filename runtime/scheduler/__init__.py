"""runtime/scheduler"""
