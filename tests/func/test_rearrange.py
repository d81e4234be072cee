"""Dimensions by name."""

import mica
import pytest
from mica.func import rearrange

X = mica.arange(24).view(2, 3, 4)


@pytest.mark.parametrize(
    ("pattern", "lengths", "expected"),
    [
        ("a b c -> c a b", {}, X.permute(2, 0, 1)),
        ("a b c -> (a b) c", {}, X.reshape(6, 4)),
        ("a b (c d) -> a c b d", {"d": 2}, X.view(2, 3, 2, 2).permute(0, 2, 1, 3)),
        ("a ... -> ... a", {}, X.permute(1, 2, 0)),
        ("... c -> (... ) c", {}, None),
        ("a b c -> a 1 (c b)", {}, X.transpose(1, 2).reshape(2, 1, 12)),
        ("a b c -> a b c", {}, X),
    ],
)
def test_patterns(pattern, lengths, expected):
    if expected is None:
        with pytest.raises(ValueError):
            rearrange(X.unsqueeze(0), pattern.replace("(... )", "..."), q=1)
        return
    assert mica.equal(rearrange(X, pattern, **lengths), expected)


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        (
            "a b -> b a",
            r"Number of dimensions in pattern \(2\) must be equal to the number of dimensions in the tensor \(3\)",
        ),
        ("a b c -> a b", "Identifiers only on one side of rearrange expression"),
        ("a b c", "must contain a single '->'"),
        ("a a c -> a c", "must be used once"),
        ("(a b c -> a b c", "not closed"),
        ("a b 2 -> a b", "anonymous axes other than 1"),
        ("a b (c d) -> a b c d", "give all but one"),
    ],
)
def test_refusals(pattern, words):
    with pytest.raises(ValueError, match=words):
        rearrange(X, pattern)
