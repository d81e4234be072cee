"""Writes files/package.pt with torch: a package of torch.package that Mica is to read.

python tests/recorded/record_packages.py
"""

import pathlib
import sys
import tempfile

SOURCES = {
    "__init__.py": "",
    "inner.py": "import math\nimport numpy as np\n\n\ndef scale(x):\n    return x * math.sqrt(4.0)\n",
    "model.py": "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n\nfrom . import inner\n\n\n"
    "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.fc = nn.Linear(3, 2)\n\n"
    "    def forward(self, x):\n        return inner.scale(F.relu(self.fc(x)))\n",
}


def main():
    import torch
    from torch.package import PackageExporter

    with tempfile.TemporaryDirectory() as folder:
        package = pathlib.Path(folder) / "packed_net"
        package.mkdir()
        for name, source in SOURCES.items():
            (package / name).write_text(source)
        sys.path.insert(0, folder)
        from packed_net.model import Net

        net = Net()
        with torch.no_grad():
            net.fc.weight.copy_(torch.tensor([[1.0, 2, 3], [-1, -2, -3]]))
            net.fc.bias.copy_(torch.tensor([0.5, 0.25]))
        path = pathlib.Path(__file__).parent / "files" / "package.pt"
        with PackageExporter(str(path)) as exporter:
            exporter.intern("packed_net.**")
            exporter.extern("numpy.**")
            exporter.save_pickle("model", "net.pkl", net)
            exporter.save_text("notes", "a.txt", "hello")
            exporter.save_source_string("made.code", "x = 3\n")


if __name__ == "__main__":
    main()
