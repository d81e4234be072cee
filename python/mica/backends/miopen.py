"""AMD's library of layers: not used. Its settings are kept."""

immediate = False
