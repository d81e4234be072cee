"""Making a quantized model of a graph that was prepared and has seen examples."""

from mica import _C
from mica.ao.quantization.fx.operations import ADD, CAT, DYNAMIC, MATMUL, MUL, SAME_SCALE, module_kind
from mica.ao.quantization.fx.references import with_reference
from mica.ao.quantization.quant_type import quant_type_of
from mica.ao.quantization.quantize import _STATIC
from mica.fx import Node

__all__ = ["convert"]

_FORMS = {ADD: "add", MUL: "mul", MATMUL: "matmul", CAT: "cat"}


class _Conversion:
    """One walk over a graph. `quantized` has the nodes whose results are quantized tensors."""

    def __init__(self, model, plan, custom, rules, is_reference):
        self.model, self.graph, self.plan, self.custom = model, model.graph, plan, custom
        self.rules, self.is_reference = rules, is_reference
        self.quantized, self.rounded, self.restored = set(), {}, {}
        self.numbers = 0

    # ---- numbers of an observer, as buffers of the model
    def _numbers(self, observer, prefix):
        scale, zero_point = observer.calculate_qparams()
        names = []
        for name, value in (("scale", scale), ("zero_point", zero_point)):
            full = f"{prefix}_{name}_{self.numbers}"
            self.model.register_buffer(full, value.detach().reshape(-1)[0].clone())
            names.append(full)
        self.numbers += 1
        return [self.graph.get_attr(name) for name in names]

    def _quantize(self, node, user, observer):
        """A quantized form of a float result, made once."""
        if node in self.quantized:
            return node
        if node not in self.rounded:
            prefix = f"{user.target.replace('.', '_')}_input" if user.op == "call_module" else ""
            with self.graph.inserting_before(user):
                scale, zero_point = self._numbers(observer, prefix)
                made = self.graph.call_function(
                    _C.quantize_per_tensor, (node, scale, zero_point, getattr(observer, "dtype", _C.quint8))
                )
            self.rounded[node] = made
            self.quantized.add(made)
        return self.rounded[node]

    def _restore(self, node, user):
        """The float form of a quantized result, made once."""
        if node not in self.quantized:
            return node
        if node not in self.restored:
            with self.graph.inserting_before(user):
                self.restored[node] = self.graph.call_method("dequantize", (node,))
        return self.restored[node]

    # ---- nodes
    def observer(self, node):
        """Observers go: where they stood in front of something quantized, their input is rounded."""
        source, observer = node.args[0], getattr(self.model, self.plan.observers[node.name])
        for user in list(node.users):
            wanted = user.name in self.plan.static
            user.replace_input_with(node, self._quantize(source, user, observer) if wanted else source)
        self.graph.erase_node(node)

    def _swap(self, node, observer, qconfig):
        """Replace a layer by its quantized form. Returns False where it has none."""
        module = self.model.get_submodule(node.target)
        own = self.custom.get(quant_type_of(qconfig), {}).get(type(module)) if self.custom else None
        made = own or _STATIC.get(module_kind(module))
        if made is None:
            return False
        module.qconfig, module.activation_post_process = qconfig, observer
        self.model.set_submodule(node.target, made.from_float(module) if own is None else own.from_observed(module))
        return True

    def _arithmetic(self, node, kind, observer):
        """A sum, a product or a joining, with the relu behind it if there is one."""
        from mica._ops import ops

        form, numbers = _FORMS[kind], ()
        tensors = node.args[0] if kind == CAT else [a for a in node.args[:2] if isinstance(a, Node)]
        relu = next((user for user in node.users if user.name in self.plan.joined), None)
        with_number = kind in (ADD, MUL) and len(tensors) < 2
        before = node if relu is None else relu
        if relu is not None:
            observer = self._behind[relu.name]
        with self.graph.inserting_before(before):
            if not with_number:
                numbers = tuple(self._numbers(observer, ""))
            target = getattr(ops.quantized, form + ("_relu" if relu is not None else ""))
            args = (list(tensors), *self._dim(node), *numbers) if kind == CAT else (*node.args[:2], *numbers)
            made = self.graph.call_function(target, args)
        before.replace_all_uses_with(made)
        self.quantized.add(made)
        for old in (relu, node):
            if old is not None:
                self.graph.erase_node(old)
        return made

    @staticmethod
    def _dim(node):
        return (node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0),)

    def static(self, node, kind, qconfig):
        observer = self._behind.get(node.name)
        if kind in _FORMS and not self.is_reference:
            self._arithmetic(node, kind, observer)
            return
        in_float32 = self._swap_for_reference(node, qconfig) or self.is_reference
        if not in_float32 and (kind == SAME_SCALE or (kind == "layer" and self._swap(node, observer, qconfig))):
            self.quantized.add(node)
            return
        for each in list(node.all_input_nodes):
            node.replace_input_with(each, self._restore(each, node))
        relu = next((user for user in node.users if user.name in self.plan.joined), None)
        self._round(node if relu is None else relu, observer if relu is None else self._behind[relu.name])

    def _swap_for_reference(self, node, qconfig):
        """Replace a layer by its reference form, where one is asked for. Returns False otherwise."""
        if node.op != "call_module":
            return False
        module = self.model.get_submodule(node.target)
        kind = self.rules.reference(type(module)) if self.rules is not None else None
        named = kind is not None and not kind.__module__.startswith("mica.ao.")
        if not self.is_reference and not named:
            return False
        made = with_reference(module, qconfig, kind)
        if made is not None:
            self.model.set_submodule(node.target, made)
        return made is not None

    def _round(self, node, observer):
        """Round a result that was computed in float32."""
        users = list(node.users)
        with self.graph.inserting_after(node):
            scale, zero_point = self._numbers(observer, "")
            made = self.graph.call_function(_C.quantize_per_tensor, (node, scale, zero_point, observer.dtype))
            made.prepend(scale)
            made.prepend(zero_point)
        for user in users:
            user.replace_input_with(node, made)
        self.quantized.add(made)

    def dynamic(self, node, qconfig):
        module = self.model.get_submodule(node.target)
        if self.is_reference:
            self._dynamic_reference(node, module, qconfig)
            return
        module.qconfig = qconfig
        own = self.custom.get(quant_type_of(qconfig), {}).get(type(module)) if self.custom else None
        if own is not None:
            self.model.set_submodule(node.target, own.from_observed(module))
        elif module_kind(module) in DYNAMIC:
            self.model.set_submodule(node.target, DYNAMIC[module_kind(module)].from_float(module))
        self.floats(node)

    def _dynamic_reference(self, node, module, qconfig):
        """A reference layer whose input is rounded by its own range."""
        made = with_reference(module, qconfig, self.rules and self.rules.reference(type(module)))
        if made is None:
            raise NotImplementedError(
                f"convert_to_reference_fx: {type(module).__name__} has no reference form with scales of each call"
            )
        self.model.set_submodule(node.target, made)
        self.floats(node)
        observer = qconfig.activation()
        if not getattr(observer, "is_dynamic", False):
            return  # the weight alone is quantized
        given = node.args[0]
        with self.graph.inserting_before(node):
            if observer.dtype == _C.float16:
                rounded = self.graph.call_method("to", (given, _C.float16))
            else:
                reduce = bool(getattr(observer, "reduce_range", False))
                rounded = self.graph.call_function(_C.quantize_per_tensor_dynamic, (given, observer.dtype, reduce))
            restored = self.graph.call_method("dequantize", (rounded,))
        node.args = (restored, *node.args[1:])

    def floats(self, node):
        """A node that stays as it is takes float32."""
        for each in list(node.all_input_nodes):
            node.replace_input_with(each, self._restore(each, node))

    def outputs(self, node):
        kept = set(self.plan.outputs)
        given = node.args[0]
        parts = list(given) if isinstance(given, (tuple, list)) else [given]
        for i, each in enumerate(parts):
            if isinstance(each, Node) and i not in kept:
                parts[i] = self._restore(each, node)
        if isinstance(given, Node):
            node.args = (parts[0],)
        elif isinstance(given, (tuple, list)):
            node.args = (type(given)(parts) if type(given) in (tuple, list) else parts,)
        else:
            self.floats(node)

    def run(self):
        nodes, plan = list(self.graph.nodes), self.plan
        # The nodes behind each node, before observers are removed.
        self._behind = {}
        for node in nodes:
            if node.name in plan.observers:
                self._behind[node.args[0].name] = getattr(self.model, plan.observers[node.name])
        placeholders = [node for node in nodes if node.op == "placeholder"]
        self.quantized |= {placeholders[i] for i in plan.inputs}
        for node in nodes:
            if node._erased:
                continue
            if node.name in plan.observers:
                self.observer(node)
            elif node.name in plan.static:
                self.static(node, *plan.static[node.name])
            elif node.name in plan.dynamic:
                self.dynamic(node, plan.dynamic[node.name])
            elif node.op == "output":
                self.outputs(node)
            elif node.op != "placeholder":
                self.floats(node)


def convert(model, custom, rules=None, is_reference=False):
    """Convert a prepared GraphModule in place. The reference form computes everything in float32 between roundings."""
    plan = model._quantization_plan
    _Conversion(model, plan, custom, rules, is_reference).run()
    for name in set(plan.observers.values()):
        delattr(model, name)
    for module in model.modules():
        module._modules.pop("activation_post_process", None)
        module.__dict__.pop("qconfig", None)
    del model._quantization_plan
    model.graph.eliminate_dead_code()
    model.delete_all_unused_submodules()
    model.recompile()
    return model
