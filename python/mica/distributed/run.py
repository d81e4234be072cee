"""torchrun: starts a program in many processes, tells each what it is, and starts them again when one fails.

usage: torchrun [--nproc-per-node N] [--nnodes N | MIN:MAX] [--max-restarts N] ... script.py [arguments]
"""

import os
import sys
import uuid
from argparse import REMAINDER, ArgumentParser

from mica.distributed.argparse_util import check_env, env
from mica.distributed.elastic.multiprocessing import ChildFailedError, DefaultLogsSpecs, SignalException, Std
from mica.distributed.elastic.multiprocessing.errors import record
from mica.distributed.elastic.rendezvous import RendezvousError
from mica.distributed.elastic.rendezvous.utils import _parse_rendezvous_config
from mica.distributed.elastic.utils import macros
from mica.distributed.elastic.utils.logging import get_logger
from mica.distributed.launcher.api import LaunchConfig, elastic_launch

logger = get_logger(__name__)


def _words(value):
    """The words of a list with commas; a comma of a word is doubled."""
    return [each.replace("\0", ",") for each in value.replace(",,", "\0").split(",")]


_MACHINES = (
    ("--nnodes", env, "1:1", str, "how many machines: a number, or the least and the most as MIN:MAX"),
    ("--nproc-per-node", env, "1", str, "how many processes on each machine: a number, auto, cpu or gpu"),
    ("--node-rank", env, 0, int, "which machine this is, from 0 (static rendezvous only)"),
    ("--master-addr", env, "127.0.0.1", str, "the address of machine 0 (static rendezvous only)"),
    ("--master-port", env, None, int, "the port of machine 0 (static rendezvous only; 29500)"),
    ("--local-addr", env, None, str, "the address of this machine, by which others reach it"),
)  # fmt: skip
_MEETING = (
    ("--rdzv-backend", env, "static", str, "how machines meet: static (their ranks are given) or c10d (they come and go)"),
    ("--rdzv-endpoint", env, "", str, "where they meet: host:port"),
    ("--rdzv-id", env, "none", str, "the name of the run"),
    ("--rdzv-conf", env, "", str, "more about how they meet: key=value,... (join_timeout, last_call_timeout, ...)"),
    ("--standalone", check_env, None, None, "one machine, which meets nobody: a free port and a fresh name are taken"),
)  # fmt: skip
_RUNNING = (
    ("--max-restarts", env, 0, int, "how often all processes are started again after one has failed"),
    ("--monitor-interval", env, 0.1, float, "seconds between two looks at the other machines"),
    ("--start-method", env, "spawn", str, "how processes of functions are started"),
    ("--event-log-handler", env, "null", str, "where events are written: null, console, or a handler of yours"),
    ("--role", env, "default", str, "what the processes are called"),
    ("--no-python", check_env, None, None, "the program is a command, not a Python script"),
    ("--run-path", check_env, None, None, "run the script within processes that are forked or spawned from this one"),
    ("--signals-to-handle", env, "SIGTERM,SIGINT,SIGHUP,SIGQUIT", str, "the signals that are passed on to the processes"),
    ("--shutdown-timeout", env, None, int, "seconds that processes have to end before they are killed (30)"),
    ("--virtual-local-rank", check_env, None, None, "LOCAL_RANK is 0 everywhere, and each process sees one GPU"),
    ("--numa-binding", None, None, str, "bind processes to CPUs near their GPUs: not in Mica yet"),
)  # fmt: skip
_OUTPUT = (
    ("--log-dir", env, None, str, "the folder for the files of all ranks; by default a temporary one"),
    ("--local-ranks-filter", env, "", str, "the local ranks whose output is shown: 0,1"),
    ("--duplicate-stdout-filters", env, [], _words, "lines of stdout with one of these words also go to a file of all ranks"),
    ("--duplicate-stderr-filters", env, [], _words, "the same for stderr"),
    ("--logs-specs", None, None, str, "the entry point in torchrun.logs_specs of a class that says where output goes"),
)  # fmt: skip


def _add(parser, options):
    for name, action, default, kind, text in options:
        names = [name] if "-" not in name[2:] else [name, "--" + name[2:].replace("-", "_")]
        if action is check_env:
            parser.add_argument(*names, action=action, help=text)
        else:
            choices = ["spawn", "fork", "forkserver"] if name == "--start-method" else None
            how = {} if action is None else {"action": action}
            parser.add_argument(*names, default=default, type=kind, help=text, choices=choices, **how)


def get_args_parser():
    """The options of torchrun. Each can be given by an environment variable too: PET_NPROC_PER_NODE and so on."""
    parser = ArgumentParser(description="Starts a program in many processes, and again when one fails.")
    for options in (_MACHINES, _MEETING, _RUNNING, _OUTPUT):
        _add(parser, options)
    parser.add_argument("-m", "--module", action=check_env, help="the program is a module, as with python -m")
    parser.add_argument(
        "-r", "--redirects", action=env, type=str, default="0",
        help="output that goes to files: 1 stdout, 2 stderr, 3 both, or by local rank: 0:3,1:1",
    )  # fmt: skip
    parser.add_argument(
        "-t",
        "--tee",
        action=env,
        type=str,
        default="0",
        help="output that goes to files and is shown too: as --redirects",
    )
    parser.add_argument("training_script", type=str, help="the program; all that follows is its own")
    parser.add_argument("training_script_args", nargs=REMAINDER)
    return parser


def parse_args(args):
    return get_args_parser().parse_args(args)


def parse_min_max_nnodes(nnodes):
    """The least and the most machines of N or MIN:MAX."""
    numbers = [int(each) for each in nnodes.split(":")]
    if len(numbers) > 2:
        raise RuntimeError(f'nnodes={nnodes} is not in "MIN:MAX" format')
    return numbers[0], numbers[-1]


def determine_local_world_size(nproc_per_node):
    """How many processes: a number, or as many as there are devices."""
    import mica

    try:
        return int(nproc_per_node)
    except ValueError:
        pass
    has_cuda = nproc_per_node in ("gpu", "auto") and mica.cuda.is_available()
    if nproc_per_node == "cpu" or (nproc_per_node == "auto" and not has_cuda):
        return len(os.sched_getaffinity(0))
    if nproc_per_node in ("gpu", "auto"):
        if not has_cuda:
            raise ValueError("Cuda is not available.")
        return mica.cuda.device_count()
    if nproc_per_node == "xpu":
        raise ValueError("Xpu is not available.")
    raise ValueError(f"Unsupported nproc_per_node value: {nproc_per_node}")


def get_rdzv_endpoint(args):
    if args.rdzv_backend == "static" and not args.rdzv_endpoint:
        return f"{args.master_addr}:{args.master_port}"
    return args.rdzv_endpoint


def get_use_env(args):
    """Whether a program learns its local rank from the environment only: torch.distributed.launch may pass it too."""
    return getattr(args, "use_env", True)


def _get_logs_specs_class(logs_specs_name):
    """What says where output goes: our own, or another package's."""
    if logs_specs_name is None:
        return DefaultLogsSpecs
    from importlib.metadata import entry_points

    for each in entry_points(group="torchrun.logs_specs", name=logs_specs_name):
        return each.load()
    raise ValueError(f"Could not find entrypoint under 'torchrun.logs_specs[{logs_specs_name}]' key")


def _limit_threads(processes):
    """Processes that share a machine get one thread each, unless somebody has said how many."""
    if "OMP_NUM_THREADS" in os.environ or processes <= 1:
        return
    logger.warning(
        "\n*****************************************\n"
        "Setting OMP_NUM_THREADS environment variable for each process to be 1 in default, to avoid your system being "
        "overloaded, please further tune the variable for optimal performance in your application as needed. \n"
        "*****************************************"
    )
    os.environ["OMP_NUM_THREADS"] = "1"


def _shown_ranks(text):
    try:
        return {int(each) for each in text.split(",")} if text else None
    except ValueError as error:
        raise ValueError(
            "--local_ranks_filter must be a comma-separated list of integers e.g. --local_ranks_filter=0,1,2"
        ) from error


def _command(args):
    """What is to run, and with which arguments."""
    if args.run_path:
        command, words = run_script_path, [args.training_script]
    elif args.no_python:
        if args.module:
            raise ValueError("Don't use both the '--no-python' flag and the '--module' flag at the same time.")
        command, words = args.training_script, []
    else:
        command, words = os.getenv("PYTHON_EXEC", sys.executable), ["-u", args.training_script]
        if args.module:  # None where another launcher fills in options that were not given
            words.insert(1, "-m")
    if not get_use_env(args):
        words.append(f"--local-rank={macros.local_rank}")
    return command, [*words, *args.training_script_args]


def config_from_args(args):
    """The configuration that the options say, the command, and its arguments."""
    least, most = parse_min_max_nnodes(args.nnodes)
    if not 0 < least <= most:
        raise AssertionError(f"min_nodes must be > 0 and <= max_nodes, got min_nodes={least}, max_nodes={most}")
    if args.max_restarts < 0:
        raise AssertionError(f"max_restarts must be >= 0, but got {args.max_restarts}")
    if args.numa_binding is not None:
        raise NotImplementedError("--numa-binding is not in Mica yet: start the program with numactl")
    if args.node_rank != 0 and args.rdzv_backend != "static":
        logger.warning("--node-rank is ignored: with --rdzv-backend=%s machines get their ranks", args.rdzv_backend)
    processes = determine_local_world_size(args.nproc_per_node)
    _limit_threads(processes)
    options = _parse_rendezvous_config(args.rdzv_conf)
    if args.rdzv_backend == "static":
        options["rank"] = args.node_rank
    logs = _get_logs_specs_class(args.logs_specs)(
        log_dir=args.log_dir,
        redirects=Std.from_str(args.redirects),
        tee=Std.from_str(args.tee),
        local_ranks_filter=_shown_ranks(args.local_ranks_filter),
    )
    config = LaunchConfig(
        min_nodes=least,
        max_nodes=most,
        nproc_per_node=processes,
        run_id=args.rdzv_id,
        role=args.role,
        rdzv_endpoint=get_rdzv_endpoint(args),
        rdzv_backend=args.rdzv_backend,
        rdzv_configs=options,
        max_restarts=args.max_restarts,
        monitor_interval=args.monitor_interval,
        start_method=args.start_method,
        log_line_prefix_template=os.getenv("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"),
        local_addr=args.local_addr,
        logs_specs=logs,
        event_log_handler=args.event_log_handler,
        signals_to_handle=args.signals_to_handle,
        duplicate_stdout_filters=args.duplicate_stdout_filters,
        duplicate_stderr_filters=args.duplicate_stderr_filters,
        virtual_local_rank=args.virtual_local_rank,
        shutdown_timeout=args.shutdown_timeout,
    )
    return config, *_command(args)


def run_script_path(training_script, *training_script_args):
    """Run a script in this process."""
    import runpy

    sys.argv = [training_script, *training_script_args]
    runpy.run_path(training_script, run_name="__main__")


def run(args):
    """Launch what the options say, and wait for its end."""
    alone = (
        args.rdzv_backend == "static"
        and not args.rdzv_endpoint
        and args.master_port is None
        and parse_min_max_nnodes(args.nnodes)[1] == 1
    )
    if args.standalone or alone:
        args.rdzv_backend, args.rdzv_endpoint, args.rdzv_id = "c10d", "localhost:0", str(uuid.uuid4())
    if args.master_port is None:
        args.master_port = 29500
    config, command, words = config_from_args(args)
    return elastic_launch(config, command)(*words)


@record
def main(args=None):
    run(parse_args(args))


def command(args=None):
    """main for a shell: a failure of the program shows the program's traceback, not the launcher's."""
    try:
        main(args)
    except (ChildFailedError, SignalException, RendezvousError) as error:
        print(f"{type(error).__module__}.{type(error).__qualname__}: {error}", file=sys.stderr)
        raise SystemExit(1) from None


if __name__ == "__main__":
    command()
