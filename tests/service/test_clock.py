"""The service's time never jumps; what the machine's clock does is reported."""

import json

import pytest

from sketchbandits.service.clock import DOUBT, GAP, ServiceClock, boot_id, uptime


class Machine:
    """A clock that somebody sets, and the time since the boot, which nobody can."""

    def __init__(self, path):
        self.path, self.wall, self.up, self.boot = path / "clock.json", 1e9, 100.0, "first boot"

    def pass_(self, seconds):
        self.wall += seconds
        self.up += seconds

    def start(self, last=None):
        return ServiceClock(self.path, last, wall=lambda: self.wall, up=lambda: self.up, boot=self.boot)


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_a_clock_that_is_set_is_reported_and_changes_nothing(machine):
    clock = machine.start()
    machine.pass_(10.0)
    assert clock.now() == 1e9 + 10.0 and clock.check() is None and clock.notes == []
    machine.wall += 3_600.0
    assert clock.now() == 1e9 + 10.0
    assert "+3600 s" in clock.check() and clock.check() is None and clock.ahead == 3_600.0
    machine.wall -= 3_600.0
    assert "-3600 s" in clock.check() and clock.now() == 1e9 + 10.0


def test_a_clock_that_is_set_between_two_processes_of_a_boot_is_found_out(machine):
    last = machine.start().now()
    machine.pass_(30.0)
    machine.wall += 3_600.0
    clock = machine.start(last)
    assert clock.now() == last + 30.0 and clock.doubt == 0.0
    (note,) = clock.notes
    assert "+3600 s" in note
    machine.pass_(5.0)
    assert machine.start(clock.now()).now() == last + 35.0, "a third process, too"


def test_small_corrections_are_taken_over_at_a_start(machine):
    last = machine.start().now()
    machine.pass_(1_000.0)
    machine.wall += 2.0
    clock = machine.start(last)
    assert clock.now() == machine.wall and not clock.notes


def test_time_never_goes_back_behind_the_last_record(machine):
    clock = machine.start(last=machine.wall + 500.0)
    assert clock.now() == machine.wall + 500.0 and clock.doubt == DOUBT and "500 s behind" in clock.notes[0]
    machine.pass_(1.0)
    assert clock.now() == machine.wall + 500.0 and clock.check() is None, "it was reported at the start"


def test_deadlines_wait_where_much_time_seems_to_have_passed_in_another_boot(machine):
    last = machine.start().now()
    machine.boot, machine.up = "second boot", 5.0
    machine.wall += GAP - 1.0
    assert machine.start(last).doubt == 0.0
    machine.boot = "third boot"
    machine.wall += 10.0
    clock = machine.start(last)
    assert clock.doubt == DOUBT and "deadlines wait" in clock.notes[0] and clock.now() == machine.wall


def test_a_clock_that_was_ahead_after_a_boot_is_followed_when_it_is_set_back(machine):
    last = machine.start().now()
    machine.boot, machine.up = "second boot", 5.0
    machine.wall += 3_700.0  # 100 s have passed, the rest is wrong
    clock = machine.start(last)
    machine.pass_(20.0)
    machine.wall -= 3_600.0
    assert "-3600 s" in clock.check() and clock.now() == last + 120.0 and clock.ahead == 0.0
    machine.pass_(10.0)
    assert machine.start(clock.now()).now() == last + 130.0 and clock.check() is None
    machine.wall -= 3_600.0  # never behind the last record
    assert clock.check() and clock.now() == last
    machine.pass_(60.0)
    machine.wall -= 3_600.0
    assert "really passed" in clock.check() and clock.now() == last + 60.0, "the clock is no longer in doubt"


def test_a_clock_that_was_behind_after_a_boot_is_not_followed(machine):
    """Otherwise decisions of the first minute would be old at once."""
    last = machine.start().now()
    machine.boot, machine.up, machine.wall = "second boot", 5.0, last - 1e8
    clock = machine.start(last)
    machine.pass_(20.0)
    machine.wall += 1e8 + 3_600.0
    assert "really passed" in clock.check() and clock.now() == last + 20.0


@pytest.mark.parametrize("text", ["", "{", "[]", '{"boot": "first boot"}', '{"boot": "first boot", "start": "x"}'])
def test_a_damaged_note_is_ignored_and_written_again(machine, text):
    machine.path.write_text(text)
    assert machine.start().now() == machine.wall
    written = json.loads(machine.path.read_text())
    assert (written["boot"], written["start"]) == ("first boot", machine.wall - machine.up)


def test_a_changed_bit_of_the_note_moves_no_deadline(machine):
    last = machine.start().now()
    whole = machine.path.read_bytes()
    for bit in range(0, 8 * len(whole), 11):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        machine.path.write_bytes(damaged)
        assert machine.start(last).now() == last


def test_a_folder_that_cannot_be_written_is_no_reason_not_to_start(machine):
    machine.path = machine.path.parent / "missing" / "clock.json"
    assert machine.start().now() == machine.wall


def test_the_real_clocks():
    before = uptime()
    assert before <= uptime() and (boot_id() is None or len(boot_id()) > 10)
