"""Makes one dictionary of nested ones, and the nested ones again."""

from mica.distributed.checkpoint._traverse import set_element, traverse_state_dict, traverse_state_dict_v_2_3

FLATTEN_MAPPING = dict[str, tuple]


def flatten_state_dict(state_dict, _traverse=traverse_state_dict):
    """The values by their paths, joined with dots, and the paths."""
    flat, paths = {}, {}

    def visit(path, value):
        key = ".".join(map(str, path))
        if key in flat:
            raise ValueError(f"duplicated flatten key {key}")
        flat[key], paths[key] = value, path

    _traverse(state_dict, visit)
    return flat, paths


def flatten_as_before_2_4(state_dict):
    """The names of the values in checkpoints of torch 2.3 and earlier."""
    return flatten_state_dict(state_dict, traverse_state_dict_v_2_3)


def unflatten_state_dict(state_dict, mapping):
    """The nested dictionary that was flattened."""
    nested = {}
    for key, value in state_dict.items():
        set_element(nested, mapping[key], value)
    return nested
