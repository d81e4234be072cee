"""Checkpoint files: what torch.serialization (mica/serialization.py) is made of.

`writer` and `reader` know the records of a file, `unpickler` runs pickles without running what they name,
`safe_globals` says what they may name, `names` translates between Mica's names and torch's, `locations` decides on which
device a storage goes, `safetensors` reads the other format.
"""
