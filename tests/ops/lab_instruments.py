"""The instruments of the Lab, for the tests that open all of them."""

# Every instrument, and an element that it draws when the engine has answered.
DRAWN = {
    "a": "[data-format='float32']",
    "b": "[data-dtype=float32]",
    "c": ".cell",
    "d": "[data-step='1']",
    "e": "[data-operand=result]",
    "f": "path[data-format=float16]",
    "g": "[data-row='A100']",
    "h": "[data-step='2']",
    "i": "[data-line=CSR]",
    "j": "[data-node=TanhBackward0]",
    "k": "[data-kernel='matrix product']",
    "l": "[data-operand=result]",
    "m": "#asked",
}
