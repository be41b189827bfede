"""The processes of this machine that a launcher has started to compute."""

from pathlib import Path

PARENT, GROUP = 1, 2  # places in a process's stat, after its name


def workers_of(number, place):
    """Those that live and have this number as their parent or their group.

    The tracker of resources that Python adds to a pool is none of them.
    """
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            command = (folder / "cmdline").read_text()
        except OSError:
            continue  # it ended while we looked
        if int(fields[place]) == number and fields[0] != "Z" and "spawn_main" in command:
            found.append(int(folder.name))
    return found
