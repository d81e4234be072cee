"""How far the values of a quantized model are from those of the model it was made of."""
