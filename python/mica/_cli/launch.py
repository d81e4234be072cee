"""`mica launch`: torchrun, with processes in which torch is Mica."""

from mica._cli.programs import pass_torch_on

HELP = """usage: mica launch [options] script.py [arguments...]
       mica launch [options] -m package [arguments...]

Starts a program written for PyTorch in many processes, on one machine or on many, with `torch` meaning Mica. The options
are torchrun's; `mica launch --help-options` lists them all.

  --nproc-per-node N     processes on each machine: a number, cpu, gpu or auto
  --nnodes N | MIN:MAX   machines; with MIN:MAX they may come and go
  --max-restarts N       how often all processes start again after one has failed
  --rdzv-backend=c10d --rdzv-endpoint=host:port --rdzv-id=name
                         where the machines meet; on one machine nothing of this is needed
  -r 3, -t 3, --log-dir  output of each rank to files, to files and the terminal, and where to

examples:
  mica launch --nproc-per-node 4 train.py --epochs 3
  mica launch --nnodes 2 --node-rank 0 --master-addr 10.0.0.1 --nproc-per-node 8 train.py
"""


def main(arguments):
    from mica.distributed import run

    if arguments == ["--help-options"]:
        run.get_args_parser().print_help()
        return
    pass_torch_on(always=True)
    run.command(arguments)
