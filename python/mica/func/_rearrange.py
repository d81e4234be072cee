"""Dimensions named in a pattern, put in another order, split and joined."""

import re

__all__ = ["rearrange"]


def _groups(side, pattern):
    """One side of a pattern: a list of names in brackets, of one name, or the dots."""
    groups, inside = [], None
    for token in re.findall(r"\.\.\.|[()]|[A-Za-z_]\w*|\d+|\S", side):
        if token == "(":
            if inside is not None:
                raise ValueError(f"brackets within brackets in the pattern {pattern!r}")
            inside = []
        elif token == ")":
            if inside is None:
                raise ValueError(f"a bracket that was not opened in the pattern {pattern!r}")
            groups.append(inside)
            inside = None
        elif token == "..." or token.isidentifier() or token == "1":
            if inside is not None:
                inside.append(token)
            else:
                groups.append(token if token == "..." else [token])
        elif token.isdigit():
            raise ValueError(f"Cannot have anonymous axes other than 1 in the pattern {pattern!r}, got {token}")
        else:
            raise ValueError(f"Invalid character {token!r} in the pattern {pattern!r}")
    if inside is not None:
        raise ValueError(f"a bracket that is not closed in the pattern {pattern!r}")
    return groups


def _names(groups, pattern):
    names = [name for group in groups for name in ([group] if group == "..." else group) if name != "1"]
    if len(set(names)) != len(names):
        raise ValueError(f"Identifiers must be used once on each side of the pattern {pattern!r}")
    return names


def _sizes(names, total, lengths):
    """The sizes of the names of a bracket, of which one may be left to find out."""
    known, unknown = 1, []
    for name in names:
        size = 1 if name == "1" else lengths.get(name)
        if size is None:
            unknown.append(name)
        else:
            known *= size
    if len(unknown) > 1:
        raise ValueError(f"the sizes of {unknown} cannot be told from {total}: give all but one")
    if unknown:
        if known == 0 or total % known:
            raise ValueError(f"a dimension of size {total} cannot be split into ({' '.join(names)}) with {lengths}")
        lengths[unknown[0]] = total // known
    elif known != total:
        raise ValueError(f"a dimension of size {total} is not ({' '.join(names)}) with {lengths}")


def rearrange(tensor, pattern, **axes_lengths):
    """The tensor with its dimensions named and ordered anew: "b (h w) c -> b c h w" with h=4."""
    import mica

    if isinstance(tensor, (list, tuple)):
        tensor = mica.stack(tuple(tensor))
    sides = pattern.split("->")
    if len(sides) != 2:
        raise ValueError(f"Pattern {pattern!r} must contain a single '->' separator")
    left, right = (_groups(side, pattern) for side in sides)
    given, wanted = set(_names(left, pattern)), set(_names(right, pattern))
    if given != wanted:
        raise ValueError(f"Identifiers only on one side of rearrange expression (should be on both): {given ^ wanted}")
    if foreign := set(axes_lengths) - given:
        raise ValueError(f"Identifiers only in axes_lengths: {foreign}")
    rest = tensor.dim() - (len(left) - ("..." in left))
    if rest < 0 or (rest and "..." not in left):
        relation = "less than or equal" if "..." in left else "equal"
        raise ValueError(
            f"Number of dimensions in pattern ({len(left) - ('...' in left)}) must be {relation} to the number of "
            f"dimensions in the tensor ({tensor.dim()})"
        )
    lengths, order, at = dict(axes_lengths), [], 0
    spread = {}
    for group in left:
        if group == "...":
            spread = {f"...{i}": tensor.shape[at + i] for i in range(rest)}
            order += spread
            at += rest
        else:
            _sizes(group, tensor.shape[at], lengths)
            order += [name for name in group if name != "1"]
            at += 1
    lengths |= spread
    target, shape = [], []
    for group in right:
        if group == "...":
            target += spread
            shape += spread.values()
        else:
            target += [name for name in group if name != "1"]
            size = 1
            for name in group:
                size *= 1 if name == "1" else lengths[name]
            shape.append(size)
    split = tensor.reshape([lengths[name] for name in order])
    return split.permute([order.index(name) for name in target]).reshape(shape)
