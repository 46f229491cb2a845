"""Rules on what the members of a set must agree on, and on the timeouts between them."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from .problem import Problem, shown
from .spec import DECODE, PREFILL, ROUTER, Instance, Spec, instance_args, instance_env, number

AGREE_VARS = ("engine_model_path", "engine_served_model_name", "engine_device")
AGREE_ARGS = (
    "tp-size",
    "pp-size",
    "page-size",
    "kv-cache-dtype",
    "dtype",
    "quantization",
    "revision",
    "attention-backend",
    "disaggregation-transfer-backend",
)
AGREE_ENV = ("SGLANG_DSV4_KV_LAYOUT", "SGLANG_DSV4_COMPRESS_STATE_DTYPE", "SGLANG_DISAGGREGATION_NIXL_BACKEND")
"""What prefill and decode must have alike (report 014, facts 4.3, 6.1): a difference shows at the first transfer."""

KEEP_ALIVE = "SGLANG_TIMEOUT_KEEP_ALIVE"
KEEP_ALIVE_SECONDS = (15, 900)
"""Below, idle sockets die under the router's pool; above, they pile up until memory ends (report 050)."""
KEEP_ALIVE_WITHOUT_RETRIES = 75
"""Seconds: the router keeps idle sockets for 50 s and without retries a stale one is an error (sglang-facts 5.3)."""
HEALTH_TIMEOUT = "SGLANG_HEALTH_CHECK_TIMEOUT"
ENGINE_HEALTH_SECONDS = 20
"""An engine's /health may take that long by default (sglang-facts 2.2, 4.2)."""
ROUTER_HEALTH_SECONDS = 5
"""The router's own default for health-check-timeout-secs (sglang-facts 5.1)."""


def model(spec: Spec) -> Iterator[Problem]:
    for engine in spec.engines:
        path = engine.vars.get("engine_model_path")
        if not isinstance(path, str) or not path.startswith("/"):
            found = "nothing" if path in (None, "") else shown("engine_model_path", path)
            yield Problem(
                spec.where(engine, "engine_model_path"),
                "engine_model_path",
                found,
                "engine_model_path: an absolute path on the machine",
            )


def agreement(spec: Spec) -> Iterator[Problem]:
    """Each difference between the engines of a set, unless pd_allow_mismatch names it."""
    names = (*AGREE_VARS, *AGREE_ARGS, *AGREE_ENV)
    allowed = {name: instance for instance in spec.instances for name in _allowed(instance)}
    for name, instance in allowed.items():
        if name not in names:
            guess = difflib.get_close_matches(name, names, 1, 0.6)
            found = f"{name}, which is nothing that is compared"
            yield Problem(
                spec.where(instance, "pd_allow_mismatch"),
                "pd_allow_mismatch",
                found,
                guess[0] if guess else ", ".join(names),
            )
    for prefill, decode in _pairs(spec):
        one, other = _compared(prefill), _compared(decode)
        for name in names:
            if one.get(name) != other.get(name) and name not in allowed:
                mine, theirs = one.get(name, "the default"), other.get(name, "the default")
                found = f"{theirs} for {decode.name}, {mine} for {prefill.name} ({_where(spec, prefill, name)})"
                yield Problem(
                    _where(spec, decode, name),
                    name,
                    found,
                    f"the same for both, or pd_allow_mismatch: [{name}] if it is meant",
                )


def _pairs(spec: Spec) -> Iterator[tuple[Instance, Instance]]:
    """Every decode with the first prefill, every further prefill with the first decode: that shows any difference."""
    prefills, decodes = spec.of(PREFILL), spec.of(DECODE)
    if prefills and decodes:
        yield from ((prefills[0], decode) for decode in decodes)
        yield from ((prefill, decodes[0]) for prefill in prefills[1:])


def _compared(engine: Instance) -> Mapping[str, str]:
    values = {name: engine.vars[name] for name in AGREE_VARS if name in engine.vars}
    values |= {name: value for name, value in instance_args(engine).items() if name in AGREE_ARGS}
    values |= {name: value for name, value in instance_env(engine).items() if name in AGREE_ENV}
    return MappingProxyType({name: str(value) for name, value in values.items()})


def _where(spec: Spec, engine: Instance, name: str) -> str:
    if name in AGREE_VARS:
        return spec.where(engine, name)
    return spec.where_arg(engine, name) if name in AGREE_ARGS else spec.where_env(engine, name)


def _allowed(instance: Instance) -> list[str]:
    given = instance.vars.get("pd_allow_mismatch") or []
    return [given] if isinstance(given, str) else [str(name) for name in given]


def transfer_backend(spec: Spec) -> Iterator[Problem]:
    """Only NIXL is installed; SGLang's own default is another one (sglang-facts 1.2)."""
    flag = "disaggregation-transfer-backend"
    for engine in spec.engines:
        given = instance_args(engine).get(flag, "nixl")
        if given != "nixl":
            yield Problem(
                spec.where_arg(engine, flag), flag, f"{given}, which a release does not contain", f"{flag}: nixl"
            )


def chunk_of_pages(spec: Spec) -> Iterator[Problem]:
    """SGLang refuses a prefill chunk that is no multiple of the page, after minutes of start (sglang-facts 1.6)."""
    for engine in spec.of(PREFILL):
        args = instance_args(engine)
        chunk, page = number(args.get("chunked-prefill-size")), number(args.get("page-size"))
        if chunk and page and chunk > 0 and chunk % page:
            where, flag = spec.where_arg(engine, "chunked-prefill-size"), "chunked-prefill-size"
            yield Problem(
                where, flag, f"{chunk}, no multiple of page-size {page}", f"{flag}: {max(chunk // page, 1) * page}"
            )


def keep_alive(spec: Spec) -> Iterator[Problem]:
    low, high = KEEP_ALIVE_SECONDS
    no_retries = [router for router in spec.of(ROUTER) if instance_args(router).get("disable-retries") is True]
    for engine in spec.engines:
        given = instance_env(engine).get(KEEP_ALIVE)
        seconds, where = number(given), spec.where_env(engine, KEEP_ALIVE)
        if given is not None and (seconds is None or not low <= seconds <= high):
            found = f"{given} s: below {low} idle sockets break, above {high} they pile up (report 050)"
            yield Problem(where, KEEP_ALIVE, found, f"{KEEP_ALIVE}: {KEEP_ALIVE_WITHOUT_RETRIES}")
        elif no_retries and (seconds or 0) < KEEP_ALIVE_WITHOUT_RETRIES:
            now = "5 s, the default" if seconds is None else f"{seconds} s"
            found = f"{now}, while {no_retries[0].name} has disable-retries and keeps idle sockets for 50 s"
            yield Problem(
                where, KEEP_ALIVE, found, f"{KEEP_ALIVE}: {KEEP_ALIVE_WITHOUT_RETRIES}, or no disable-retries"
            )


def router_patience(spec: Spec) -> Iterator[Problem]:
    """A worker whose /health takes longer than the router waits never registers (sglang-facts 5.3)."""
    flag = "health-check-timeout-secs"
    slowest = max(
        (number(instance_env(engine).get(HEALTH_TIMEOUT)) or ENGINE_HEALTH_SECONDS for engine in spec.engines),
        default=ENGINE_HEALTH_SECONDS,
    )
    for router in spec.of(ROUTER):
        given = instance_args(router).get(flag, ROUTER_HEALTH_SECONDS)
        seconds = number(given)
        if seconds is None or seconds <= slowest:
            found = f"{given} s, but an engine's /health may take {slowest} s: under load no worker would register"
            yield Problem(spec.where_arg(router, flag), f"router_args.{flag}", found, f"{flag}: {slowest + 5}")
