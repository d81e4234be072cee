"""The examples in torch's docstrings: every public module and class is walked, and each docstring's code taken out."""

import ast
import importlib
import inspect
import pkgutil
import re
import textwrap
import types
import warnings

# Modules that are not walked, with the reason.
NOT_WALKED = {
    r"torch\.(cuda|xpu|mps|mtia|accelerator|distributed|multiprocessing)\b": "needs another device or other processes",
    r"torch\.(jit|onnx|package|export|compiler|hub|contrib|monitor)\b": "needs TorchScript, torch.compile, the network or another package",
    r"torch\.ao\.(ns|nn\.sparse|quantization\.(pt2e|fx|backend_config|quantizer|quantize_fx|quantize_jit|quantize_pt2e))\b": "graphs of torch.export and FX quantization",
    r"torch\.(utils\.(tensorboard|bottleneck|hipify|cpp_extension|model_dump|viz|mobile_optimizer|bundled_inputs|show_pickle|serialization))\b": "needs another package or a compiler",
    r"torch\.(testing\._internal|fx\.(experimental|passes)|nn\.attention\.experimental|backends|cpp|torch_version)\b": "not the public interface",
}
_NOT_WALKED = re.compile("|".join(NOT_WALKED))


def modules(torch):
    """torch's public modules, by name."""
    found = {"torch": torch}
    stack = [torch]
    while stack:
        package = stack.pop()
        for entry in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
            if entry.name.rsplit(".", 1)[1].startswith("_") or _NOT_WALKED.match(entry.name):
                continue
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    module = importlib.import_module(entry.name)
            except Exception:  # needs a package that is not there
                continue
            found[entry.name] = module
            if hasattr(module, "__path__"):
                stack.append(module)
    return dict(sorted(found.items()))


def documented(torch):
    """Name, defining module and docstring of functions, classes and their members; each text once."""
    seen = set()
    for module_name, module in modules(torch).items():
        for name in sorted(vars(module), key=lambda name: (name != "Tensor", name)):  # before its subclasses by dtype
            if name.startswith("_"):
                continue
            value = vars(module)[name]
            if isinstance(value, types.ModuleType) or not _is_torchs(value):
                continue
            yield from _texts(f"{module_name}.{name}", getattr(value, "__module__", None), value, seen)


def _is_torchs(value):
    home = getattr(value, "__module__", None)
    return home is None or (home.split(".")[0] == "torch" and not _NOT_WALKED.match(home))


def _texts(name, home, value, seen, depth=0):
    text = getattr(value, "__doc__", None)
    is_own = callable(value) or isinstance(value, (property, types.GetSetDescriptorType))
    if isinstance(text, str) and is_own and text not in seen:
        seen.add(text)
        yield name, home, text
    if inspect.isclass(value) and depth < 2:
        for member_name, member in sorted(vars(value).items()):
            if member_name.startswith("_") and member_name not in ("__init__", "__getitem__", "__call__"):
                continue
            if isinstance(member, (staticmethod, classmethod)):
                member = member.__func__
            yield from _texts(f"{name}.{member_name}", home, member, seen, depth + 1)


_PROMPT = re.compile(r"^\s*(>>>|\.\.\.)(?: (.*)|(.*))$")
_BLOCK = re.compile(r"^(?P<indent>\s*)(?:.*Examples?.*::|\.\. code(?:-block)?:: *python)\s*$")


def statements(text):
    """The statements of a docstring's examples, each as source."""
    if ">>>" in text:
        return _of_prompts(text)
    found = []
    for block in _indented_blocks(text):
        try:
            found += _split(block)
        except SyntaxError:
            continue  # prose, or a signature
    return found


def _split(source):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of escapes
        nodes = ast.parse(source).body
    return [_on_the_cpu(ast.unparse(node)) for node in nodes if not _is_left_open(node)]


def _is_left_open(node):
    """Whether a statement is `model = ...`, or `...` alone: the runner has such things ready."""
    return isinstance(node, (ast.Assign, ast.Expr)) and isinstance(node.value, ast.Constant) and node.value.value is ...


def _on_the_cpu(source):
    """An example for a GPU, as one for the CPU."""
    source = re.sub(r"(['\"])cuda(:\d)?\1", "'cpu'", source)
    return source.replace(".cuda()", ".cpu()")


def _of_prompts(text):
    """Lines behind prompts, in runs that stand between printed results."""
    runs, run = [], []
    for line in [*text.expandtabs().splitlines(), ""]:
        match = _PROMPT.match(line)
        if match:
            code = match[2] if match[2] is not None else match[3]
            run.append((match[1] == ">>>", code))
        elif run:
            runs.append(run)
            run = []
    found, whole = [], "\n".join(code for run in runs for _, code in run)
    try:
        return _split(whole)
    except SyntaxError:
        pass
    for run in runs:
        try:
            found += _split(textwrap.dedent("\n".join(code for _, code in run)))
        except SyntaxError:
            found += _statement_by_statement(run)
    return found


def _statement_by_statement(run):
    """The run's statements where it is not Python as a whole: what begins at a prompt and can be read."""
    found, start = [], 0
    while start < len(run):
        for end in range(len(run), start, -1):
            try:
                found += _split(textwrap.dedent("\n".join(code for _, code in run[start:end])))
            except SyntaxError:
                continue
            start = end
            break
        else:
            start += 1
    return found


def _indented_blocks(text):
    lines = text.expandtabs().splitlines()
    for number, line in enumerate(lines):
        match = _BLOCK.match(line)
        if not match:
            continue
        block = []
        for following in lines[number + 1 :]:
            indent = len(following) - len(following.lstrip())
            if following.strip() and indent <= len(match["indent"]):
                break
            block.append(following)
        yield textwrap.dedent("\n".join(line for line in block if not line.strip().startswith(":")))


def collect(torch):
    """(name, defining module, statements) of every docstring that has examples; equal examples once."""
    found, seen = [], set()
    for name, home, text in documented(torch):
        lines = statements(text)
        key = "\n".join(lines)
        if lines and key not in seen:
            seen.add(key)
            found.append((name, home, lines))
    return found
