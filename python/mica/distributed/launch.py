"""The launcher of old: `python -m torch.distributed.launch script.py`, which is torchrun's."""

from mica.distributed.run import get_args_parser, parse_args, run

__all__ = ["get_args_parser", "launch", "main", "parse_args"]


def launch(args):
    run(args)


def main(args=None):
    launch(parse_args(args))


if __name__ == "__main__":
    main()
