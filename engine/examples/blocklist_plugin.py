#!/usr/bin/env python3
"""A blocklist strategy in Python: leaves a node whose disk is full, and nothing else.

Reads one JSON object a line for each failed execution, and answers each with one line: the same id, and the items it wants.
Run it with

    cluster.resource-blocklist.strategy = plugin
    cluster.resource-blocklist.strategy.plugin = python3 engine/examples/blocklist_plugin.py

What it writes to standard error is dropped; an answer must come within a second (strategy.plugin.answer-timeout).
"""

import json
import re
import sys

DISK = re.compile("No space left on device|Read-only file system|Input/output error")
TEN_MINUTES = 10 * 60 * 1000


def items(failure):
    """The items that a failure is worth."""
    causes = [failure["cause"], *failure["chain"]]
    if not any(DISK.search(cause["message"]) for cause in causes):
        return []
    return [
        {
            "node": location["node"],
            "action": "MARK_BLOCKLISTED_AND_EVACUATE_TASKS",
            "timeoutMs": TEN_MINUTES,
            "cause": "disk: " + failure["cause"]["message"],
        }
        for location in failure["locations"]
    ]


for line in sys.stdin:
    failure = json.loads(line)
    print(json.dumps({"id": failure["id"], "items": items(failure)}), flush=True)
