"""Tracing of programs with assertions: they are rewritten to calls, which a graph can hold."""

import ast
import copy
import functools
import inspect
import textwrap
import types

from mica.fx._symbolic_trace import Tracer
from mica.nn import Module

__all__ = ["AST_Rewriter", "RewritingTracer"]


class AST_Rewriter(ast.NodeTransformer):
    """Rewrites the source of a function: `assert` calls torch._assert, and `x: T = y` calls annotate(y, T)."""

    def rewrite(self, fn):
        """The function with its source rewritten. Its globals stay its own."""
        tree = self.visit(ast.parse(textwrap.dedent("".join(inspect.getsourcelines(fn)[0]))))
        table = dict(fn.__globals__)
        exec(compile(ast.fix_missing_locations(tree), inspect.getsourcefile(fn) or "", "exec"), table)
        new = [
            value for name, value in table.items() if name not in fn.__globals__ or fn.__globals__[name] is not value
        ]
        found = [value for value in new if getattr(value, "__name__", None) == fn.__name__]
        if len(found) != 1:
            raise AssertionError(f"Expected 1 new key, got {len(new)}")
        made = inspect.unwrap(found[0]) if not isinstance(found[0], types.FunctionType) else found[0]
        bound = types.FunctionType(made.__code__, fn.__globals__, made.__name__, made.__defaults__, made.__closure__)
        bound.__kwdefaults__ = copy.copy(made.__kwdefaults__)
        return functools.update_wrapper(bound, made)

    def visit_Assert(self, node):
        call = ast.parse("torch._assert()", mode="eval").body
        call.args = [node.test, node.msg or ast.Constant(value="")]
        return ast.copy_location(ast.Expr(value=call), node)

    def visit_AnnAssign(self, node):
        name = ast.Name(id="annotate", ctx=ast.Load())
        call = ast.Call(func=name, args=[node.value, node.annotation], keywords=[])
        return ast.copy_location(ast.Assign(targets=[node.target], value=call), node)


class RewritingTracer(Tracer):
    """Traces a function, or a module with all that it holds, as rewritten."""

    def trace(self, root, concrete_args=None):
        return super().trace(_rewritten(root), concrete_args)


def _rewritten(root):
    if not isinstance(root, Module):
        return AST_Rewriter().rewrite(root)

    class RewrittenModule(Module):
        def __init__(self, original):
            super().__init__()
            for name, value in vars(original).items():
                self.__dict__[name] = _rewritten(value) if isinstance(value, Module) else copy.copy(value)

    forward = root.forward
    RewrittenModule.forward = AST_Rewriter().rewrite(getattr(forward, "__func__", forward))
    return RewrittenModule(root)
