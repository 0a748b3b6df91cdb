"""Starts MiniStack, with two of its waits shortened.

Its Lambda runtime API writes headers and body as two packets; with Nagle's algorithm and delayed acknowledgements
that costs 40 ms in each call. Its scheduler looks at the clock every 10 s; a demonstration cannot wait for that.
"""

import socketserver
import sys

socketserver.StreamRequestHandler.disable_nagle_algorithm = True

import ministack.services.scheduler as scheduler  # noqa: E402

scheduler._SCHEDULE_TICK_INTERVAL = 1

from ministack.app import main  # noqa: E402

sys.argv = ["ministack"]
main()
