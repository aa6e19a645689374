"""The noise side of sampling, as arithmetic: sigma tables, sigma schedules, samplers."""
