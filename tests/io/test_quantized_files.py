"""Quantized tensors in files: as torch writes them, with nothing in them that runs."""

import io

import mica as torch


def test_round_trip_under_weights_only():
    channels = torch.quantize_per_channel(
        torch.linspace(-1, 1, 12).reshape(3, 4), torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0, 1, 2]), 0, torch.qint8
    )
    whole = torch.quantize_per_tensor(torch.linspace(-1, 1, 6), 0.1, 3, torch.quint8)
    file = io.BytesIO()
    torch.save({"channels": channels, "whole": whole, "part": whole[2:], "scheme": torch.per_channel_affine}, file)
    assert b"QInt8Storage" in file.getvalue() and b"ctorch\nper_tensor_affine\n" in file.getvalue()
    file.seek(0)
    loaded = torch.load(file, weights_only=True)
    assert torch.equal(loaded["channels"], channels) and loaded["channels"].q_per_channel_axis() == 0
    assert torch.equal(loaded["whole"], whole) and torch.equal(loaded["part"], whole[2:])
    assert loaded["scheme"] is torch.per_channel_affine
