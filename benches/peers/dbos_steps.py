"""Steps a second of DBOS: workflows of trivial steps, so many at once, for so many seconds.

Arguments: the address of a database, which is made; how many at once; for how long.
"""

import importlib.metadata
import sys
import threading
import time

from dbos import DBOS

STEPS = 100


@DBOS.step()
def step(number: int, subject: str) -> dict:
    return {"number": number, "subject": subject}


@DBOS.workflow()
def chain(subject: str, until: float) -> int:
    done = 0
    while done < STEPS and time.monotonic() < until:
        step(done, subject)
        done += 1
    return done


def main() -> None:
    address, at_once, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    DBOS(config={
        "name": "bench",
        "system_database_url": address,
        "sys_db_pool_size": at_once,
        "log_level": "ERROR",
        "run_admin_server": False,
    })
    DBOS.launch()
    subject = "The printer on the third floor says PC LOAD LETTER"
    chain(subject, time.monotonic() + 1)
    done, started = [], time.monotonic()
    until = started + seconds

    def client() -> None:
        while time.monotonic() < until:
            done.append(chain(subject, until))

    clients = [threading.Thread(target=client) for _ in range(at_once)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join()
    rate = sum(done) / (time.monotonic() - started)
    print(importlib.metadata.version("dbos"), f"{rate:.1f}")
    DBOS.destroy()


if __name__ == "__main__":
    main()
