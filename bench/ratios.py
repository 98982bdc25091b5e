#!/usr/bin/env python3
"""ratios.py LINES: tables of rates, and of Tidegate's ratios to the others round by round, as markdown.

Each input line is a round's number and the JSON object that a program printed. Ratios are made within a round, so that
what slows the machine down for a while falls on both sides: median, least and greatest of the rounds.
"""
import json
import statistics
import sys

DEFAULT_KEYS = "keys=1000000"


def spread(values, scale=1.0):
    shown = [v * scale for v in values]
    return f"{statistics.median(shown):.2f} ({min(shown):.2f}-{max(shown):.2f})"


def main(path):
    rates, sums = {}, {}
    for line in open(path):
        number, text = line.split(" ", 1)
        row = json.loads(text)
        words = row["params"].split()
        workers = next(w for w in words if w.startswith("workers="))
        # Few keys are another work: their state is in the caches.
        keys = [w for w in words if w.startswith("keys=") and w != DEFAULT_KEYS]
        variant = " ".join(w for w in words if w != workers and not w.startswith("keys="))
        work = (row["workload"], *keys, workers)
        rates.setdefault(work, {}).setdefault((row["peer"], variant), {})[int(number)] = row["events_per_s"]
        sums.setdefault((row["workload"], *keys, row["events"]), set()).add((row["out"], row["chk"]))

    print("| workload | program | M events/s | rounds |\n|---|---|---|---|")
    for work, programs in sorted(rates.items()):
        for (peer, variant), rounds in sorted(programs.items()):
            print(f"| {' '.join(work)} | {peer} {variant} | {spread(rounds.values(), 1e-6)} | {len(rounds)} |")

    print("\nTidegate's rate divided by the other's, in the same round.\n")
    print("| workload | Tidegate | to | median (least-greatest) | rounds |\n|---|---|---|---|---|")
    for work, programs in sorted(rates.items()):
        ours = {key: rounds for key, rounds in programs.items() if key[0] == "tidegate"}
        engines = [rounds for key, rounds in programs.items() if key[0] not in ("tidegate", "hand")]
        others = {f"{peer} {variant}".strip(): rounds for (peer, variant), rounds in programs.items() if peer != "tidegate"}
        others["the fastest engine of the round"] = {
            n: max(rounds[n] for rounds in engines if n in rounds) for n in set().union(*engines)
        } if engines else {}
        for (_, variant), mine in sorted(ours.items()):
            for other, rounds in others.items():
                ratios = [mine[n] / rounds[n] for n in sorted(mine) if n in rounds]
                if ratios:
                    print(f"| {' '.join(work)} | {variant} | {other} | {spread(ratios)} | {len(ratios)} |")

    differ = [f"{' '.join(map(str, work))} events: {found}" for work, found in sums.items() if len(found) > 1]
    print("\nAll results of the same work are equal." if not differ else "\nRESULTS DIFFER: " + "; ".join(differ))


main(sys.argv[1])
