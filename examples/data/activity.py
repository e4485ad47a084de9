"""Writes activity.csv: what the watches of 30 people noted, made up. python3 activity.py > activity.csv

Each activity has typical values; each person moves in a way of their own (an offset to every value),
does some activities more than others, and has 20 to 50 rows.
"""
import random

random.seed(7)
NAMES = """amara ben chloe dmitri elif farid greta hana ivan julia kofi lena milan nora omar priya
quentin rosa sven tara ugo vera wei xenia yusuf zoe anton bella carl daria""".split()
COLUMNS = ["heart_rate", "step_rate", "arm_swing", "tilt", "loudness", "speed"]  # Hz, Hz, m, rad, Pa, m/s
TYPICAL = {
    "sitting": [1.1, 0.1, 0.1, 0.2, 0.4, 0.1],
    "walking": [1.5, 1.8, 0.9, 0.5, 0.5, 1.4],
    "cycling": [2.0, 0.3, 0.3, 0.9, 0.7, 4.4],
    "running": [2.5, 2.6, 1.6, 0.6, 0.6, 3.1],
}
SPREAD = [0.2, 0.3, 0.25, 0.2, 0.2, 0.6]

print(",".join(["user", *(c for c in COLUMNS), "activity"]))
for name in NAMES:
    manner = [random.gauss(0, s) for s in SPREAD]
    habits = [random.gammavariate(0.8, 1) for _ in TYPICAL]
    for activity in random.choices(list(TYPICAL), habits, k=random.randint(20, 50)):
        values = [t + m + random.gauss(0, s) for t, m, s in zip(TYPICAL[activity], manner, SPREAD)]
        print(",".join([name, *(f"{max(v, 0):.2f}" for v in values), activity]))
