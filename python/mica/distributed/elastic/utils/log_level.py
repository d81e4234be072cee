"""How much the launcher says by default."""


def get_log_level():
    return "WARNING"
