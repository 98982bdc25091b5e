#!/usr/bin/env python3
"""Runs the flights job on three task managers of two nodes under random calls to its blocklist, and checks what it did.

usage: blocklist_storm.py RUNNER [CALLS [PER_SECOND]]     RUNNER is the program tidegate-bench

Checked, from the job's own list of events: no subtask ever starts on something blocklisted; marks leave running subtasks
alone; evacuations that had room took at most two seconds; no answer was a 5xx. And the job's result is exact. Ends with 0 if
all of it holds. Needs Python's own library only.
"""

import hashlib
import http.client
import json
import os
import random
import subprocess
import sys
import tempfile
import time

EXPECTED = "3d570fcfea317152485293db930d59d0dcfb3fdee683ab5f6fdfc72627d9fc00"
MARK = "MARK_BLOCKLISTED"
EVACUATE = "MARK_BLOCKLISTED_AND_EVACUATE_TASKS"
LONG = "x" * 300
MOVE_MS_MAX = 2000


class Client:
    def __init__(self, address):
        self.connection = http.client.HTTPConnection(address, timeout=30)

    def call(self, method, path, body=None):
        text = None if body is None else json.dumps(body)
        self.connection.request(method, path, text, {"content-type": "application/json"} if text else {})
        response = self.connection.getresponse()
        answer = response.read()
        if response.status >= 500:
            raise SystemExit(f"{method} {path}: {response.status} {answer!r}")
        return response.status, json.loads(answer) if answer else None


class Checked:
    """Reads the events in order, and checks each start."""

    def __init__(self):
        self.last = 0
        self.blocked, self.places, self.had_to_leave = {}, {}, set()
        self.begun = None
        self.starts, self.moved, self.moves_ms, self.stuck, self.wrong = 0, 0, [], 0, []

    def read(self, client):
        while True:
            _, page = client.call("GET", f"/events?after={self.last}&limit=1000")
            for event in page["events"]:
                self.event(event)
            if len(page["events"]) < 1000:
                return

    def event(self, event):
        self.last = event["number"]
        kind, at = event["event"], int(event["timestamp"])
        key = (event.get("type"), event.get("id"))
        if kind in ("ITEM_ADDED", "ITEM_UPDATED"):
            self.blocked[key] = event["action"]
            if event["action"] == EVACUATE:
                self.had_to_leave.add(key)
        elif kind in ("ITEM_REMOVED", "ITEM_EXPIRED"):
            self.blocked.pop(key, None)
        elif kind == "DEPLOYED":
            place = {("NODE", event["node"]), ("TASK_MANAGER", event["taskManager"])}
            if place & self.blocked.keys():
                self.wrong.append(f"started on something blocklisted: {event} {self.blocked}")
            self.places[event["attempt"]] = place
            self.starts += 1
        elif kind == "EVACUATION_BEGUN":
            self.begun = at
        elif kind == "EVACUATION_STUCK":
            self.begun, self.stuck = None, self.stuck + 1
        elif kind == "NOT_ENOUGH_SLOTS":
            self.begun = None
        elif kind == "EVACUATED":
            for attempt in event["attempts"]:
                # One that has a slot but was not sent there yet has no place.
                place = self.places.get(attempt)
                if place is not None and not place & self.had_to_leave:
                    self.wrong.append(f"moved though it was only marked: {event}")
            self.moved += len(event["attempts"])
            if self.begun is not None:
                self.moves_ms.append(at - self.begun)
            self.begun = None


def random_call(dice, client, managers):
    nodes = ["node1", "node2", "elsewhere", "", LONG]
    ids = managers + ["unknown", LONG]
    timeouts = [0, 1, 50, "200 ms", "1 s", "1 min", "1 h"]

    def entry(of):
        return {"id": dice.choice(of), "action": dice.choice([MARK, EVACUATE]), "timeout": dice.choice(timeouts)}

    node, manager = entry(nodes), entry(ids)
    added = [
        {"newBlocklistedNodes": [node]},
        {"newBlocklistedTaskManagers": [manager]},
        {"newBlocklistedNodes": [node], "newBlocklistedTaskManagers": [manager]},
        {"newBlocklistedTaskManagers": [manager, manager]},
    ]
    removed = {
        "blocklistedNodesToRemove": [{"id": node["id"]}],
        "blocklistedTaskManagersToRemove": [{"id": manager["id"]}],
    }
    which = dice.randrange(8)
    if which < 4:
        force = dice.choice(["", "?force=true"])
        client.call("POST", f"/blocklist/add{force}", dice.choice(added))
    elif which < 6:
        client.call("POST", "/blocklist/remove?ignoreMissing=true", removed)
    elif which == 6:
        client.call("GET", "/blocklist")
    else:
        client.call("DELETE", f"/blocklist/taskmanagers/{manager['id']}")


def clear(client):
    _, found = client.call("GET", "/blocklist")
    client.call("POST", "/blocklist/remove?ignoreMissing=true", {
        "blocklistedNodesToRemove": [{"id": item["id"]} for item in found["blocklistedNodes"]],
        "blocklistedTaskManagersToRemove": [{"id": item["id"]} for item in found["blocklistedTaskManagers"]],
    })


def result(folder):
    lines = []
    for name in os.listdir(folder):
        if name.startswith("part-"):
            with open(os.path.join(folder, name), "rb") as part:
                lines += part.read().splitlines(keepends=True)
    return hashlib.sha256(b"".join(sorted(lines))).hexdigest()


def main(runner, calls=2000, per_second=200):
    seed = int(os.environ.get("SEED", time.time_ns() % 1_000_000))
    print(f"SEED={seed}")
    dice = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        output = os.path.join(folder, "output")
        # Long enough for all calls.
        rate = max(200, 200_000 * per_second // (calls * 2))
        job = subprocess.Popen(
            [runner, "flights", "--rate", str(rate), "--rest", "127.0.0.1:0", "--quiet",
             "--task-managers", "node1:1,node1:1,node2:2", "--parallelism", "2",
             "--cluster.resource-blocklist.enabled", "true",
             "--output", output, "--checkpoints", os.path.join(folder, "checkpoints")],
            stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            line = job.stderr.readline()
            client = Client(line.split("http://")[1].split()[0])
            while client.call("GET", "/jobs")[1]["jobs"][0]["status"] != "RUNNING":
                time.sleep(0.05)
            _, found = client.call("GET", "/taskmanagers")
            managers = [manager["id"] for manager in found["taskmanagers"]]
            checked, begin = Checked(), time.monotonic()
            for number in range(calls):
                time.sleep(max(0.0, begin + number / per_second - time.monotonic()))
                random_call(dice, client, managers)
                if number % 100 == 99:
                    clear(client)
                    checked.read(client)
            clear(client)
            checked.read(client)
            took = time.monotonic() - begin
            _, err = job.communicate(timeout=600)
        finally:
            job.kill()
        problems = list(checked.wrong)
        if job.returncode != 0:
            problems.append(f"the job ended with {job.returncode}: {err}")
        elif result(output) != EXPECTED:
            problems.append(f"the result is not exact: {result(output)}")
        slow = [ms for ms in checked.moves_ms if ms > MOVE_MS_MAX]
        if slow:
            problems.append(f"evacuations took {slow} ms")
    moves = sorted(checked.moves_ms)
    median = moves[len(moves) // 2] if moves else None
    print(f"{calls} calls in {took:.1f} s; {checked.starts} starts, {checked.moved} moved in {len(moves)} evacuations "
          f"(median {median} ms, longest {moves[-1] if moves else None} ms), {checked.stuck} stuck")
    for problem in problems:
        print(problem)
    print(f"{0 if problems else 1} passed, {1 if problems else 0} failed")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *map(int, sys.argv[2:])))
