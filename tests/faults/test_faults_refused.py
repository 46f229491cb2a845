"""Before anything is stopped: what speaks against a restart, and that nothing was touched."""

from __future__ import annotations

import pytest

from tests.faults.acts import at_a_terminal, both, on_node, play, restart, scripted, unattended, variables
from tests.faults.scenario import Scenario, carry_out
from tests.support.pairs import Pair

pytestmark = pytest.mark.host
RELEASE = "/opt/sglang-pd/releases/*"
CLEAR = "refused: clear the machine first. Nothing was stopped"
MEND = "refused: mend what is asked for. Nothing was stopped"
REBOOT = "refused: reboot or hardware. Nothing was stopped"
IN_STATE_D = "import ctypes, time; ctypes.CDLL(None).vfork() or time.sleep(300)"
DROP_IN = "/etc/systemd/system/sglang-engine@decode0.service.d"
BUSY = scripted("decode0", loads={"num_running_reqs": 53})
AS_SGLANG = "systemd-run -q --unit stray --uid sglang sleep 300"


def refused(*says: str, act: object = restart, arrange: object, reports: tuple[str, ...] = ()) -> Scenario:
    return Scenario(act=act, ends="untouched", says=says, arrange=arrange, reports=reports)  # type: ignore[arg-type]  # rows give any field


SCENARIOS = {
    "disk full": refused(
        CLEAR, r"/var/cache/sglang-pd: disk\s+found: \d+ MiB are free, below pd_disk_floor_mib \(512\)",
        arrange=on_node("mount -t tmpfs -o size=8m tmpfs /var/cache/sglang-pd"),
    ),
    "no inodes left": refused(
        CLEAR, r"/var/cache/sglang-pd: disk\s+found: \d+ inodes are free",
        arrange=on_node("mount -t tmpfs -o size=1g,nr_inodes=50 tmpfs /var/cache/sglang-pd"),
    ),
    "so full that the check itself cannot be written": refused(
        CLEAR, "No space left on device: not even this check could be written",
        arrange=on_node("mount -t tmpfs -o size=16k,mode=1777 tmpfs /tmp"),
    ),
    "release half made": refused(CLEAR, r"release.json: release\s+found: missing", arrange=on_node(f"rm {RELEASE}/release.json")),
    "an interpreter of the release that does not run": refused(
        CLEAR, r"engine/bin/python: release\s+found: does not run as user sglang",
        arrange=on_node("cp /usr/bin/python3 /root/python && chmod 700 /root", f"ln -sfn /root/python {RELEASE}/engine/bin/python"),
    ),
    "a package changed by hand in the release": refused(
        CLEAR, r"1 packages are not what it was made with: sglang is 0.5.99, was 0.5.23",
        arrange=on_node(f"sed -i 's/^Version: .*/Version: 0.5.99/' {RELEASE}/engine/lib/python3*/site-packages/sglang-*.dist-info/METADATA"),
        reports=("014",),
    ),
    "a file of the model is missing": refused(
        CLEAR, r"/srv/fake lacks 1 of 1 files that model.safetensors.index.json names, a.safetensors first",
        arrange=on_node("""echo '{"weight_map": {"x": "a.safetensors"}}' > /srv/fake/model.safetensors.index.json"""),
    ),
    "a port taken by a stranger": refused(
        CLEAR, r"nccl-port\s+found: port 30009 is held by process \d+ \(.*http.server",
        arrange=both(
            on_node("systemd-run -q --unit stranger python3 -m http.server 30009 --bind 127.0.0.1"),
            lambda pair: pair.project.knob("decode.yml", "engine_args", "nccl-port", "30009"),
        ),
        act=play("restart-pd.yml"), reports=("018", "155"),
    ),
    "a left-over process of the services' user": refused(
        CLEAR, r"left-over process\s+found: process \d+, since \d{4}-\S+: \S*sleep 300 \(of user sglang, in no unit of the set",
        arrange=on_node(AS_SGLANG), reports=("071",),
    ),
    "an instance that left the inventory still runs": refused(
        CLEAR, r"systemctl disable --now sglang-engine@old9.service",
        arrange=on_node(
            "cp /etc/systemd/system/sglang-engine@.service /etc/systemd/system/sglang-engine@old9.service",
            "sed -i -e '/^ConditionPath/d' -e '/^EnvironmentFile/d' -e 's|^ExecStart=.*|ExecStart=/bin/sleep 300|'"
            " /etc/systemd/system/sglang-engine@old9.service && systemctl daemon-reload && systemctl start sglang-engine@old9",
        ),
    ),
    "a process that the kernel does not let go": refused(
        REBOOT, r"process in state D\s+found: process \d+, since \S+: .*waits in the kernel",
        arrange=on_node(f"systemd-run -q --unit stuck --uid sglang python3 -c '{IN_STATE_D}'"), reports=("110",),
    ),
    "a forgotten drop-in": refused(
        MEND, r"99-test.conf:2: Environment\s+found: a drop-in that wins over the unit and the generation",
        arrange=on_node(f"mkdir -p {DROP_IN} && printf '[Service]\\nEnvironment=SGLANG_X=0\\n' > {DROP_IN}/99-test.conf && systemctl daemon-reload"),
        reports=("063", "064"),
    ),
    "a directive that systemd does not take": refused(
        MEND, r"sglang-engine@.service:\d+: unit\s+found: .*kill mode.*proces",
        arrange=on_node("sed -i 's/^KillMode=mixed/KillMode=proces/' /etc/systemd/system/sglang-engine@.service && systemctl daemon-reload"),
        reports=("068",),
    ),
    "roles that do not fit": refused(
        "page-size", "the same for both, or pd_allow_mismatch",
        arrange=lambda pair: pair.project.knob("decode.yml", "engine_args", "page-size", "16"), reports=("014",),
    ),
    "the user's own check says: hardware": refused(
        REBOOT, r"found: GPU 3 has fallen off the bus",
        arrange=variables(pd_preflight_commands=["sh -c 'echo GPU 3 has fallen off the bus; exit 2'"]), reports=("110", "111"),
    ),
    "a generation directory edited by hand": refused(
        r"decode0/env of generation \w+ is not what was written there",
        arrange=on_node("echo SGLANG_X=1 >> /etc/sglang-pd/current/decode0/env"),
    ),
    "everything at once": refused(
        REBOOT, "left-over process", "99-test.conf:2", "GPU 3",
        arrange=both(
            on_node(AS_SGLANG),
            on_node(f"mkdir -p {DROP_IN} && printf '[Service]\\nEnvironment=SGLANG_X=0\\n' > {DROP_IN}/99-test.conf && systemctl daemon-reload"),
            variables(pd_preflight_commands=["sh -c 'echo GPU 3 has fallen off the bus; exit 2'"]),
        ),
    ),
    "53 requests running, nobody to ask": refused(
        "53 requests are in flight, more than pd_confirm_over_running .10.", "no terminal to ask at", "-e pd_confirm_over_running=53",
        arrange=BUSY, act=unattended("restart-pd.yml", pd_confirm_over_running=10),
    ),
    "53 requests running, the operator says no": refused(
        "Restarting prefill0, decode0, router0 stops service for", "The answer was not yes; nothing was stopped",
        arrange=BUSY, act=at_a_terminal("restart-pd.yml", r"Go on\? \[yes/no\]", "no", pd_confirm_over_running=10),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SCENARIOS)
def test_refused_and_nothing_touched(pair: Pair, case: str) -> None:
    carry_out(SCENARIOS[case], pair)


def test_check_mode_says_that_it_would_ask(pair: Pair) -> None:
    """--check never asks."""
    BUSY(pair)
    done = unattended("restart-pd.yml", pd_confirm_over_running=10)
    checked = pair.project.play("restart-pd.yml", "--check", pd_confirm_over_running=10).ok()
    assert "53 requests are in flight" in checked.stdout and "Without --check it would be asked" in checked.stdout
    assert "53 running" in done(pair).stdout
