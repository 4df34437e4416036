"""Stands between the proxy and the server: every message to the server goes into a file, unchanged.

  heard.py FILE COMMAND…
"""

import subprocess
import sys

log = open(sys.argv[1], "ab", buffering=0)
server = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE)
for line in sys.stdin.buffer:
    log.write(line)
    server.stdin.write(line)
    server.stdin.flush()
server.stdin.close()
sys.exit(server.wait())
