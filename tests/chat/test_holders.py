"""Who drives a run: a name that no later process has."""

import subprocess
import sys

import pytest

from toolmason.chat.durable.process_identity import get_process_identity, is_dead


def test_get_process_identity_is_there():
    assert not is_dead(get_process_identity())
    assert get_process_identity() == get_process_identity()


def test_a_number_that_was_given_again_is_another_process():
    """A lease must not be held by whoever got the number of the process that took it."""
    place, pid, began = get_process_identity().split()

    assert is_dead(f"{place} {pid} {int(began) - 1}")


def test_a_process_that_ended_is_gone_also_while_nobody_has_asked_for_its_end():
    code = (
        "from toolmason.chat.durable.process_identity import get_process_identity\n"
        "print(get_process_identity(), flush=True)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        name = process.stdout.readline().strip()
        process.stdout.read()  # its end; it is a zombie until `wait`
        while not is_dead(name):
            pass
    process.wait(10)

    assert is_dead(name)


@pytest.mark.parametrize(
    "holder",
    [
        pytest.param("elsewhere/boot/pid 1 2", id="another machine"),
        pytest.param("", id="nothing"),
        pytest.param("12-abcdef", id="an older form"),
        pytest.param("a b c d", id="nonsense"),
    ],
)
def test_what_cannot_be_known_counts_until_its_lease_ends(holder):
    assert not is_dead(holder)
