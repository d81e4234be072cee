"""SDPBackend is an enumeration whose members are no numbers, as in torch."""

from mica.nn.attention import SDPBackend


def test_members():
    assert not isinstance(SDPBackend.MATH, int) and SDPBackend.MATH != 0 and SDPBackend(0) is SDPBackend.MATH
    assert int(SDPBackend.FLASH_ATTENTION) == 1 and ["a", "b"][SDPBackend.FLASH_ATTENTION] == "b"
    assert repr(SDPBackend.MATH) == "<SDPBackend.MATH: 0>" and str(SDPBackend.MATH) == "SDPBackend.MATH"
    assert list(SDPBackend.__members__)[:2] == ["ERROR", "MATH"]
