"""torch.quasirandom.SobolEngine: torch's points."""

import mica
import pytest


def test_points_are_those_of_torch():
    engine = mica.quasirandom.SobolEngine(3)
    assert engine.draw(4).tolist() == [[0, 0, 0], [0.5, 0.5, 0.5], [0.75, 0.25, 0.25], [0.25, 0.75, 0.75]]
    more = engine.draw(2, dtype=mica.float64)
    assert more.tolist() == [[0.375, 0.375, 0.625], [0.875, 0.875, 0.125]] and engine.num_generated == 6
    again = engine.reset().fast_forward(4).draw(2)
    assert again.equal(more.float()) and repr(engine) == "SobolEngine(dimension=3)"


def test_scrambled_points_fill_every_half():
    points = mica.quasirandom.SobolEngine(5, scramble=True, seed=3).draw_base2(5)
    assert points.shape == (32, 5) and ((points >= 0.5).sum(0) == 16).all() and (points[1:] != points[:-1]).all()
    with pytest.raises(ValueError, match="balance properties"):
        mica.quasirandom.SobolEngine(2).fast_forward(3).draw_base2(2)
    with pytest.raises(ValueError, match="Supported range"):
        mica.quasirandom.SobolEngine(30000)


def test_all_dimensions():
    engine = mica.quasirandom.SobolEngine(21201)
    assert engine.draw(3)[2, -4:].tolist() == [0.75, 0.25, 0.75, 0.75]
