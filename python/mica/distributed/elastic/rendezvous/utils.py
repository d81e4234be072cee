"""Endpoints and options of a rendezvous, as text says them."""

import ipaddress
import re
import socket

__all__ = ["parse_rendezvous_endpoint"]


def _parse_rendezvous_config(config_str):
    """The options in key1=value1,key2=value2."""
    options = {}
    for each in filter(None, [config_str.strip()]):
        for pair in each.split(","):
            key, _, value = (part.strip() for part in pair.partition("="))
            if not key:
                raise ValueError(
                    "The rendezvous configuration string must be in format <key1>=<value1>,...,<keyN>=<valueN>."
                )
            if not value:
                raise ValueError(f"The rendezvous configuration option '{key}' must have a value specified.")
            options[key] = value
    return options


def _try_parse_port(port_str):
    return int(port_str) if port_str and re.match(r"^[0-9]{1,5}$", port_str) else None


def parse_rendezvous_endpoint(endpoint, default_port):
    """The host and the port of host[:port]. An IPv6 address stands in brackets."""
    endpoint = (endpoint or "").strip()
    if not endpoint:
        return "localhost", default_port
    host, *rest = [endpoint] if endpoint[0] == "[" and endpoint[-1] == "]" else endpoint.rsplit(":", 1)
    if len(host) > 1 and host[0] == "[" and host[-1] == "]":
        host = host[1:-1]
    port = _try_parse_port(rest[0]) if rest else default_port
    if port is None or port >= 2**16:
        raise ValueError(
            f"The port number of the rendezvous endpoint '{endpoint}' must be an integer between 0 and 65536."
        )
    if not re.match(r"^[\w\.:-]+$", host):
        raise ValueError(
            f"The hostname of the rendezvous endpoint '{endpoint}' must be a dot-separated list of labels, an IPv4 "
            "address, or an IPv6 address."
        )
    return host, port


def _addresses(host):
    try:
        found = socket.getaddrinfo(host, None, proto=socket.IPPROTO_TCP, flags=socket.AI_CANONNAME)
    except (ValueError, OSError):
        return set(), set()
    return {each[4][0] for each in found}, {each[3] for each in found if each[3]}


def _matches_machine_hostname(host):
    """Whether a host is this machine, by its name or one of its addresses."""
    if host in ("localhost", socket.gethostname()):
        return True
    try:
        if ipaddress.ip_address(host).is_loopback:
            return True
    except ValueError:
        pass
    own, names = _addresses(socket.gethostname())
    return host in names or host in own or bool(own & _addresses(host)[0])
