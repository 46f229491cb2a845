"""The engines of the session, started once and all at the same time."""

from collections.abc import Iterator

import pytest

from tests.double.asking import KEY, Doubles
from tests.fakes import doubles


@pytest.fixture(scope="session")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Doubles]:
    home = tmp_path_factory.mktemp("doubles")
    expose = {"SGLANG_EXPOSE_OWN_ENV_VARS": "1"}
    knobs = {**expose, "SGLANG_WARMUP_TIMEOUT": "600", "SGLANG_HOST_IP": "127.0.0.1", "SPT_NOENV": "1"}
    made = Doubles(
        prefill=doubles.make_double(home, "prefill", "prefill", environ=expose),
        decode=doubles.make_double(
            home, "decode", "decode", environ=knobs, api_key=KEY, admin_api_key="s3cret-admin", tp_size=2
        ),
        loading=doubles.make_double(
            home, "loading", "prefill", script={"never_ready": "load", "load_lines_every_s": 0.1}
        ),
        warming=doubles.make_double(home, "warming", "decode", script={"never_ready": "warmup", "drain_poll_s": 0.05}),
        wide=doubles.make_double(home, "wide", "decode", environ={"KNOB": "1"}),
    )
    every = list(vars(made).values())
    try:
        for engine in every:
            engine.start()
        for engine in (made.prefill, made.decode):
            engine.wait_ready()
        yield made
    finally:
        for engine in every:
            engine.stop()
