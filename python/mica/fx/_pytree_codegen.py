"""The code of graphs whose inputs are nests: forward takes them apart and puts its results together."""

import collections

from mica.fx._codegen import CodeGen
from mica.utils import _pytree as pytree

_PyTreeInfo = collections.namedtuple("_PyTreeInfo", ["orig_args", "in_spec", "out_spec"])


class _PyTreeCodeGen(CodeGen):
    def __init__(self, pytree_info):
        super().__init__()
        self.pytree_info = pytree_info

    def process_inputs(self, *inputs):
        return pytree.arg_tree_leaves(*inputs)

    def process_outputs(self, out):
        if self.pytree_info is None or self.pytree_info.out_spec is None:
            return out
        return pytree.tree_unflatten(out if isinstance(out, (list, tuple)) else [out], self.pytree_info.out_spec)

    def gen_fn_def(self, free_vars, maybe_return_annotation="", *, expanded_def=False):
        if self.pytree_info is None:
            return super().gen_fn_def(free_vars, maybe_return_annotation, expanded_def=expanded_def)
        names = list(self.pytree_info.orig_args)
        if names and names[0] == "self":
            free_vars = ["self", *free_vars]
        head = super().gen_fn_def(list(names), maybe_return_annotation, expanded_def=expanded_def)
        if not free_vars:
            return head
        annotated = [each for each in free_vars if ":" in each]
        if annotated:
            head += "\n    " + "".join(f"{each}; " for each in annotated) + "\n"
        targets = ", ".join(each.split(":")[0].split("#")[0].split("=")[0].strip() for each in free_vars)
        return f"{head}\n    {targets}, = fx_pytree.tree_flatten_spec({self._given(names)}, self._in_spec)"

    def _given(self, names):
        """The nest of arguments: a list, or a list and a dict where keywords were given."""
        spec = self.pytree_info.in_spec
        children = spec.children() if spec.type is tuple else ()
        if len(children) != 2 or children[0].type is not tuple or children[1].type is not dict:
            return f"[{', '.join(names)}]"
        count = len(children[0].children())
        keywords = zip(children[1].context, names[count:], strict=False)
        return f"([{', '.join(names[:count])}], {{{', '.join(f'{key!r}:{name}' for key, name in keywords)}}})"

    def generate_output(self, output_args):
        if self.pytree_info and self.pytree_info.out_spec:
            return f"return pytree.tree_unflatten({output_args}, self._out_spec)"
        return super().generate_output(output_args)

    generate_output.takes_text = True
