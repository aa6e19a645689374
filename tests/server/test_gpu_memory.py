"""The driver's listing becomes names and bytes."""

from __future__ import annotations

from nodeloom.server.gpu_memory import GpuMemory, parse_gpus


def test_lines_become_gpus_and_odd_lines_are_left_out() -> None:
    text = "0, NVIDIA H200, 143771, 143000\n1, NVIDIA H200, [N/A], 1\n\nNo devices were found\n"
    gpu = GpuMemory(name="NVIDIA H200", total_bytes=143771 * 2**20, free_bytes=143000 * 2**20)
    assert parse_gpus(text) == {0: gpu}
