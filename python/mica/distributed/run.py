"""torchrun for a world of one process: sets what a launcher sets, then runs the program in this process.

usage: python -m torch.distributed.run [--nproc-per-node 1] [--standalone] script.py [arguments]
"""

import argparse
import os
import runpy
import sys
import uuid

_OPTIONS = (
    ("--nnodes", "1:1"), ("--nproc-per-node", "1"), ("--node-rank", "0"), ("--master-addr", "127.0.0.1"),
    ("--master-port", "29500"), ("--rdzv-backend", "static"), ("--rdzv-endpoint", ""), ("--rdzv-id", "none"),
    ("--rdzv-conf", ""), ("--max-restarts", "0"), ("--monitor-interval", "0.1"), ("--start-method", "spawn"), ("--role", "default"),
    ("--log-dir", None), ("--redirects", "0"), ("--tee", "0"), ("--local-ranks-filter", ""), ("--local-addr", None),
    ("--logs-specs", None), ("--numa-binding", None),
)  # fmt: skip


def get_args_parser():
    """The options of torchrun."""
    parser = argparse.ArgumentParser(prog="torchrun", description="Runs a program as a world of one process.")
    for name, default in _OPTIONS:
        names = {name, name.replace("-", "_").replace("__", "--", 1)}
        parser.add_argument(*sorted(names, reverse=True), default=default)
    parser.add_argument("--standalone", action="store_true")
    parser.add_argument("-m", "--module", action="store_true", help="the program is a module")
    parser.add_argument("--no-python", "--no_python", action="store_true")
    parser.add_argument("--run-path", "--run_path", action="store_true")
    parser.add_argument("--use-env", "--use_env", action="store_true")
    parser.add_argument("training_script")
    parser.add_argument("training_script_args", nargs=argparse.REMAINDER)
    return parser


def parse_args(args=None):
    return get_args_parser().parse_args(args)


def _check(given):
    processes, nodes = given.nproc_per_node, given.nnodes
    if processes not in ("1", "cpu", "auto", "gpu") or nodes.split(":")[-1] != "1":
        raise RuntimeError(
            f"torchrun was asked for {nodes} node(s) with {processes} process(es) each: Mica computes in one process. "
            "Say --nnodes 1 --nproc-per-node 1"
        )
    if given.no_python:
        raise RuntimeError("torchrun --no-python is not in Mica: start the program itself")


def run(args):
    """Run a program with the environment of rank 0 of 1."""
    _check(args)
    identity = str(uuid.uuid4()) if args.standalone else args.rdzv_id
    os.environ.update({
        "LOCAL_RANK": "0", "RANK": "0", "GROUP_RANK": "0", "ROLE_RANK": "0", "ROLE_NAME": args.role, "LOCAL_WORLD_SIZE": "1",
        "WORLD_SIZE": "1", "GROUP_WORLD_SIZE": "1", "ROLE_WORLD_SIZE": "1", "MASTER_ADDR": args.master_addr,
        "MASTER_PORT": args.master_port, "TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": args.max_restarts,
        "TORCHELASTIC_RUN_ID": identity,
    })  # fmt: skip
    sys.argv = [args.training_script, *args.training_script_args]
    if args.module:
        runpy.run_module(args.training_script, run_name="__main__", alter_sys=True)
        return
    sys.path.insert(0, os.path.dirname(os.path.abspath(args.training_script)))
    runpy.run_path(args.training_script, run_name="__main__")


def main(args=None):
    run(parse_args(args))


if __name__ == "__main__":
    main()
