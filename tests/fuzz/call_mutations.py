"""Turns a good call, written as an expression, into a bad or odd one: wrong ranks, sizes, dtypes, layouts, numbers, types.

Expressions are those of tests/ops/sample_runner.py; the result is an expression again, so that a failing case is its own report.
"""

import ast
import copy

CONSTRUCTORS = ("T", "P", "I", "B", "C", "X")
HUGE = [2**31 - 1, 2**31, -(2**31), 2**32, 2**32 + 1, 2**40, 2**62, 2**63 - 1, -(2**63), 2**63, -(2**64)]
SMALL = [0, 1, 2, 3, 4, 5, 7, 9, 17, -1, -2, -3]
FLOATS = ["0.0", "-0.0", "0.5", "1.0", "-1.0", "2.0", "3", "1e30", "-1e300", "1e-320", "float('nan')", "float('inf')"]
FLOATS += ["float('-inf')"]
WORDS = ["none", "mean", "sum", "same", "valid", "nearest", "bilinear", "reflect", "circular", "zeros", "max", "", "é"]
WRONG_TYPES = [
    "None",
    "'word'",
    "[]",
    "()",
    "{}",
    "1.5",
    "True",
    "(1, None)",
    "[[1], 2]",
    "object",
    "float('nan')",
    "3 + 1j",
]
WRONG_TYPES += ["T(2)", "I(1)", "b'x'", "slice(None)", "[T(2), None]"]
DTYPES = [
    "float64",
    "float32",
    "bfloat16",
    "float16",
    "int64",
    "int32",
    "uint8",
    "int8",
    "bool",
    "complex64",
    "complex128",
]
DTYPES += ["float8_e4m3fn", "float8_e5m2", "uint16", "uint64"]
LIKELY_DTYPES = ["float64", "float32", "bfloat16", "float16"]

# Changes of a tensor, as expressions over `t`. Those of LEGAL keep its shape and values, or most of them.
LEGAL = [
    "{}.transpose(0, -1).contiguous().transpose(0, -1)",
    "{}.unsqueeze(-1).repeat_interleave(2, -1)[..., 0]",
    "{}[:1].expand_as({})",
    "{}.contiguous(memory_format=torch.channels_last)",
    "{}.contiguous(memory_format=torch.channels_last_3d)",
    "{}.detach()",
    "{}.clone()",
    "{}.unsqueeze(0)",
    "{}.squeeze(0)",
    "{}[0]",
    "{}[:0]",
    "{}[..., :0]",
    "{}[..., ::2]",
    "{}[..., 1:]",
    "{}.flip(-1)",
    "{}.sum()",
    "{}.t().clone().t()",
]
HOSTILE = [
    "{}.to('meta')",
    "{}.expand(2, *{}.shape)",
    "{}.unsqueeze(0).unsqueeze(0).unsqueeze(0)",
    "{}.reshape(-1)",
    "({} * float('nan'))",
    "({} / 0)",
    "({} * 1e38)",
    "[{}]",
    "({}, {})",
    "{}.tolist()",
    "{}.shape",
    "{}.conj()",
    "{}.requires_grad_()",
    "{}.new_empty(0)",
    "{}.new_zeros(())",
    "{}.new_empty((0, 1099511627776))",
    "{}.new_empty((2147483648, 0, 2147483648))",
    "torch.empty({}.shape, device='meta')",
    "torch.empty((1048576, 1048576, 1048576), device='meta')",
    "torch.nn.Parameter({}.detach())",
    "{}.to_sparse()",
    "torch.as_strided({}, (2, 2), (0, 0))",
]
OURS_ALONE = ["{}[::-1]", "{}[..., ::-1]"]  # torch has no negative strides


def expression(text):
    return ast.parse(text, mode="eval").body


def is_constructor(node):
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CONSTRUCTORS


def substitutions(text, changes):
    """The expression with one of its tensors changed, for every tensor and every change (a text with {} for the tensor)."""
    tree = expression(text)
    count = sum(is_constructor(node) for node in ast.walk(tree))
    for i in range(count):
        for change in changes:
            copied = copy.deepcopy(tree)
            target = [node for node in ast.walk(copied) if is_constructor(node)][i]
            new = expression(change.replace("{}", ast.unparse(target)))
            yield ast.unparse(ast.fix_missing_locations(replaced(copied, target, new)))


def replaced(tree, target, new):
    class Swap(ast.NodeTransformer):
        def visit(self, node):
            return new if node is target else self.generic_visit(node)

    return Swap().visit(tree)


class Mutator:
    def __init__(self, random, hostility=0.5, negative_strides=False):
        self.random, self.hostility = random, hostility
        self.negative_strides = negative_strides

    def hostile(self):
        return self.random.random() < self.hostility

    def mutate(self, text):
        tree = expression(text)
        for _ in range(self.random.choice([1, 1, 1, 2, 2, 3])):
            places = []
            self.collect(tree, places.append)
            if places:
                tree = self.replace(tree, self.random.choice(places))
        return ast.unparse(ast.fix_missing_locations(tree))

    def collect(self, node, found):
        """The nodes that can be changed; a constructor's sizes are its own matter."""
        if is_constructor(node):
            found(node)
            return
        if isinstance(node, ast.Constant | ast.List | ast.Tuple) or (isinstance(node, ast.Call) and node.args):
            found(node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.operand, ast.Constant):
            found(node)
            return
        if isinstance(node, ast.Attribute) and node.attr in DTYPES:
            found(node)
            return
        for child in ast.iter_child_nodes(node):
            if not (
                isinstance(node, ast.Call) and child is node.func and not isinstance(child, ast.Attribute | ast.Call)
            ):
                self.collect(child, found)

    def replace(self, tree, target):
        return replaced(tree, target, self.changed(target))

    def changed(self, node):
        if is_constructor(node):
            return self.changed_tensor(node)
        if isinstance(node, ast.Call):
            return self.changed_call(node)
        if isinstance(node, ast.List | ast.Tuple):
            return self.changed_list(node)
        if isinstance(node, ast.Attribute):
            return expression("torch." + self.random.choice(DTYPES if self.hostile() else LIKELY_DTYPES))
        return self.changed_constant(node)

    def changed_tensor(self, node):
        choice, text = self.random.random(), ast.unparse(node)
        if choice < 0.35:
            return self.reshaped(node)
        if choice < 0.55:
            dtype = self.random.choice(DTYPES if self.hostile() else LIKELY_DTYPES)
            return expression(f"{text}.to(torch.{dtype})")
        if choice < 0.6 and self.hostile():
            return expression(self.random.choice(["None", "3", "1.5", "'x'", "[]", "[None]", "torch"]))
        if choice < 0.65:
            other = copy.deepcopy(node)
            other.func = ast.Name(self.random.choice(["T", "P", "I", "B", "C"]), ast.Load())
            other.keywords = []
            return other
        changes = HOSTILE if self.hostile() else LEGAL
        if self.negative_strides and self.random.random() < 0.15:
            changes = OURS_ALONE
        return expression(self.random.choice(changes).replace("{}", text))

    def reshaped(self, node):
        node = copy.deepcopy(node)
        sizes, random = node.args, self.random
        how = random.choice(["zero", "one", "grow", "drop", "add", "shrink", "zero first", "huge"])
        if how == "add" or not sizes:
            sizes.insert(random.randrange(len(sizes) + 1), ast.Constant(random.choice([0, 1, 2, 3])))
            return node
        at = random.randrange(len(sizes))
        size = sizes[at].value if isinstance(sizes[at], ast.Constant) else 1
        if how == "drop":
            del sizes[at]
        elif how == "huge" and self.hostile():
            others = random.choice([0, 0, 1])
            node.args = [
                ast.Constant(random.choice([2**16, 2**31, 2**40, 2**62])) if i == at else ast.Constant(others)
                for i in range(len(sizes))
            ]
        else:
            at = 0 if how == "zero first" else at
            new = {
                "zero": 0,
                "zero first": 0,
                "one": 1,
                "grow": size + random.choice([1, 2, 16]),
                "shrink": size - 1,
            }.get(how, 2)
            sizes[at] = ast.Constant(max(new, 0))
        return node

    def changed_call(self, node):
        node, random = copy.deepcopy(node), self.random
        how = random.choice(["drop", "duplicate", "swap", "keyword", "unknown", "again"])
        if how == "drop" and node.args:
            del node.args[random.randrange(len(node.args))]
        elif how == "duplicate" and node.args:
            node.args.insert(random.randrange(len(node.args)), copy.deepcopy(random.choice(node.args)))
        elif how == "swap" and len(node.args) > 1:
            a, b = random.sample(range(len(node.args)), 2)
            node.args[a], node.args[b] = node.args[b], node.args[a]
        elif how == "keyword" and node.keywords:
            del node.keywords[random.randrange(len(node.keywords))]
        elif how == "unknown" and self.hostile():
            node.keywords.append(
                ast.keyword(
                    random.choice(["out", "self", "foo", "input", "dim"]), ast.Constant(random.choice([None, 1]))
                )
            )
        elif node.keywords:
            random.shuffle(node.keywords)
        return node

    def changed_list(self, node):
        node, random = copy.deepcopy(node), self.random
        how = random.choice(["drop", "append", "empty", "other kind", "reverse", "nest"])
        if how == "drop" and node.elts:
            del node.elts[random.randrange(len(node.elts))]
        elif how == "append":
            node.elts.append(copy.deepcopy(random.choice(node.elts)) if node.elts else ast.Constant(1))
        elif how == "empty":
            node.elts.clear()
        elif how == "reverse":
            node.elts.reverse()
        elif how == "nest" and self.hostile() and node.elts:
            node.elts[0] = ast.List([node.elts[0]], ast.Load())
        else:
            return (ast.List if isinstance(node, ast.Tuple) else ast.Tuple)(node.elts, ast.Load())
        return node

    def changed_constant(self, node):
        random = self.random
        value = node.value if isinstance(node, ast.Constant) else 0
        if self.hostile() and random.random() < 0.3:
            return expression(random.choice(WRONG_TYPES))
        if isinstance(value, bool) or value is None:
            return expression(
                random.choice(["True", "False", "None", "2", "T(4)"] if self.hostile() else ["True", "False"])
            )
        if isinstance(value, str):
            return ast.Constant(random.choice(WORDS))
        if isinstance(value, float):
            return expression(random.choice(FLOATS))
        number = random.choice(HUGE) if self.hostile() and random.random() < 0.4 else random.choice(SMALL)
        return expression(str(number)) if random.random() < 0.8 else expression(f"({number}, {random.choice(SMALL)})")
