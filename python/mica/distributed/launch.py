"""The launcher of old: `python -m torch.distributed.launch script.py`, which passes --local-rank to the script."""

import warnings

from mica.distributed.run import get_args_parser, run

__all__ = ["launch", "main", "parse_args"]


def parse_args(args):
    parser = get_args_parser()
    parser.add_argument(
        "--use-env",
        "--use_env",
        default=False,
        action="store_true",
        help="do not pass --local-rank: LOCAL_RANK says it",
    )
    return parser.parse_args(args)


def launch(args):
    if args.no_python and not args.use_env:
        raise ValueError("When using the '--no-python' flag, you must also set the '--use-env' flag.")
    return run(args)


def main(args=None):
    warnings.warn(
        "The module torch.distributed.launch is deprecated\nand will be removed in future. Use torchrun.\n"
        "Note that --use-env is set by default in torchrun.\nIf your script expects `--local-rank` argument to be set, "
        "please\nchange it to read from `os.environ['LOCAL_RANK']` instead.",
        FutureWarning,
        stacklevel=2,
    )
    launch(parse_args(args))


if __name__ == "__main__":
    main()
