"""The command line: spillway run | papa | policy NAME | plan | explain CLASS CLUSTER |
certify [FILE] | steps.

`python -m spillway_optimizer` does the same.
"""

import asyncio
import logging
import signal
import sys

import click
from redis.exceptions import RedisError
from spillway_contracts import ContractError, names
from spillway_contracts import topology as topology_file
from spillway_runtime import command_line, exit_codes, logs
from spillway_runtime.settings import load

from spillway_optimizer import OptimizerError
from spillway_optimizer.clients import hot
from spillway_optimizer.commands import certify, run, steps
from spillway_optimizer.policies import REGISTRY
from spillway_optimizer.solving import config


@click.group(cls=command_line.Group)
def cli() -> None:
    """Computes routing rules."""


cli.add_command(run.plan)
cli.add_command(run.explain)
cli.add_command(certify.certify)
cli.add_command(steps.steps)


@cli.command("run")
def _loop() -> int:
    """The optimizer's loop."""
    return asyncio.run(_serve("run"))


@cli.command("papa")
def _papa() -> int:
    """The worker that adjusts rules by what is observed."""
    return asyncio.run(_serve("papa"))


@cli.command("policy", epilog=f"NAME is one of {', '.join(sorted(REGISTRY))}.")
@click.argument("name", metavar="NAME", type=click.Choice(sorted(REGISTRY)))
def _policy(name: str) -> int:
    """Sets the policy that the optimizer follows."""
    return asyncio.run(_store_policy(name))


def main() -> int:
    """Parses the arguments and runs the command. Returns the exit code."""
    try:
        return command_line.run(cli, "spillway")
    except (OptimizerError, ContractError) as error:
        print(error, file=sys.stderr)
        return getattr(error, "exit_code", exit_codes.FAILED)


async def _store_policy(name: str) -> int:
    """Stores in Redis the policy that the optimizer follows. Returns the exit code."""
    settings = load(config.Redis)
    redis = hot.connect(settings.redis_url, settings.redis_options())
    try:
        await redis.set(names.REDIS_KEY_POLICY, name)
    except (OSError, RedisError) as error:
        print(f"SPILLWAY_REDIS_URL: {error}", file=sys.stderr)
        return exit_codes.FAILED
    finally:
        await redis.aclose()
    print(f"policy: {name}")
    return 0


async def _serve(role: str) -> int:
    """Runs the optimizer's loop (`run`) or the PAPA worker (`papa`) until SIGTERM or SIGINT."""
    from spillway_optimizer.clients.history import History
    from spillway_optimizer.clients.proposals import Proposals
    from spillway_optimizer.papa.worker import Worker
    from spillway_optimizer.service.loop import Service

    settings: config.Optimizer | config.Papa = config.BOX.load(role)
    try:
        topology = topology_file.load(settings.topology)
    except ContractError as error:
        print(f"SPILLWAY_TOPOLOGY: {error}", file=sys.stderr)
        return exit_codes.USAGE
    logs.start({"nats": logging.CRITICAL})  # it logs every attempt to reconnect
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    redis = hot.connect(settings.redis_url, settings.redis_options())
    history, tls = History(settings.clickhouse_address), settings.nats_tls()
    service: Service | Worker
    try:
        if isinstance(settings, config.Optimizer):
            proposals = Proposals(settings.nats_url, "optimizer", tls)
            service = Service(settings, topology, redis, history, proposals)
        else:
            proposals = Proposals(settings.nats_url, "papa", tls)
            service = Worker(settings, topology, redis, history, proposals)
    except ContractError as error:
        print(f"SPILLWAY_GUARDRAILS: {error}", file=sys.stderr)
        return exit_codes.USAGE
    await service.run(stop)
    return 0


if __name__ == "__main__":
    sys.exit(main())
