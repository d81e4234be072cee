"""TORCH_LOGS and torch._logging: reports of graphs, by torch's names."""

import logging
import os
import subprocess
import sys

import mica as torch
import pytest

PROGRAM = """
import mica as torch
f = torch.compile(lambda x: (x + 1) * (2 if x.sum().item() > 0 else 3), backend=lambda graph, inputs: graph)
f(torch.ones(3)); f(torch.ones(4))
"""


def errors_of(logs):
    environment = {**os.environ, "TORCH_LOGS": logs}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def test_graphs_breaks_and_recompilations_are_written():
    code, written = errors_of("graph_breaks,graph_code,graph_sizes,recompiles")
    assert code == 0, written
    for words in ("[__graph_breaks] Reason: item() asks for values", "[__graph_code] TRACED GRAPH", "def forward",
                  "[__graph_sizes] l_x_: (4,)", "[__recompiles] Recompiling function <lambda>"):  # fmt: skip
        assert words in written, written
    assert errors_of("guards,output_code,-graph_code") == (0, "")


def test_names_that_are_none_are_errors():
    code, written = errors_of("bogus")
    assert code == 1 and "Invalid log settings: bogus" in written and "graph_breaks" in written
    assert "artifacts that Mica writes" in errors_of("help")[1]
    with pytest.raises(ValueError, match="Unrecognized log or artifact name passed to set_logs: nothing"):
        torch._logging.set_logs(nothing=True)
    with pytest.raises(ValueError, match="Expected bool to enable artifact graph"):
        torch._logging.set_logs(graph=3)


def test_levels_are_set_and_put_back():
    try:
        torch._logging.set_logs(dynamo=logging.DEBUG, graph=True)
        assert logging.getLogger("torch._dynamo").level == logging.DEBUG
        assert torch._logging.getArtifactLogger("mine", "graph").isEnabledFor(logging.DEBUG)
    finally:
        torch._logging.set_logs()
    assert logging.getLogger("torch._dynamo").level == logging.NOTSET
    assert not torch._logging.getArtifactLogger("mine", "graph").isEnabledFor(logging.DEBUG)
