"""The windows of calendars by Python's zoneinfo, in the form of `rategate config windows`.

Without arguments it prints where zoneinfo reads its zones and their version. With a folder, and
lines of `name zone unit anchor` on its input, it writes the windows of each into a file there.
"""

import calendar
import sys
import zoneinfo
from datetime import datetime, timedelta, timezone
from pathlib import Path

BEGIN = int(datetime(2011, 1, 1, tzinfo=timezone.utc).timestamp())
END = int(datetime(2036, 1, 1, tzinfo=timezone.utc).timestamp())
DAYS = {"day": 1, "week": 7}
MONTHS = {"month": 1, "quarter": 3, "year": 12}


def folder():
    """The folder of zoneinfo's data: the system's, or that of the package tzdata."""
    for path in zoneinfo.TZPATH:
        if (Path(path) / "Europe" / "London").is_file():
            return Path(path)
    import tzdata

    return Path(tzdata.__file__).parent / "zoneinfo"


def version(path):
    for name in ("tzdata.zi", "+VERSION"):
        if (path / name).is_file():
            return (path / name).read_text().split("\n")[0]
    try:
        import tzdata

        return tzdata.IANA_VERSION
    except ImportError:
        return "unknown"


def border(anchor, unit, number):
    """The local time of a border."""
    if unit in DAYS:
        return anchor + timedelta(days=number * DAYS[unit])
    year, month = divmod(anchor.year * 12 + anchor.month - 1 + number * MONTHS[unit], 12)
    day = min(anchor.day, calendar.monthrange(year, month + 1)[1])
    return anchor.replace(year=year, month=month + 1, day=day)


def first_instant(local, zone):
    """The first second at which the zone's clocks show the local time or a later one."""
    instant = int(local.replace(tzinfo=zone).timestamp())
    shown = lambda at: datetime.fromtimestamp(at, zone).replace(tzinfo=None)
    if shown(instant) == local:
        return instant
    # In a gap: it ends between the instants by the offsets before and after it.
    early, late = int(local.replace(tzinfo=zone, fold=1).timestamp()), instant
    assert early < late and shown(early) < local < shown(late), (local, zone)
    while late - early > 1:
        middle = (early + late) // 2
        early, late = (middle, late) if shown(middle) < local else (early, middle)
    return late


def windows(zone, unit, anchor):
    zone, anchor = zoneinfo.ZoneInfo(zone), datetime.fromisoformat(anchor)
    step = DAYS.get(unit) or MONTHS[unit] * 28
    begin, end = datetime.fromtimestamp(BEGIN), datetime.fromtimestamp(END)
    numbers = range((begin - anchor).days // step - 3, (end - anchor).days // step + 4)
    if unit in MONTHS:
        # A step of 28 days is too short for a month, so these are more than enough.
        numbers = range(min(numbers.start, 0) * 2, numbers.stop)
    borders = sorted({first_instant(border(anchor, unit, number), zone) for number in numbers})
    for start, end in zip(borders, borders[1:]):
        if end > BEGIN and start < END:
            local = (datetime.fromtimestamp(at, zone).isoformat() for at in (start, end))
            yield f"{' '.join(local)} {end - start}\n"


if len(sys.argv) == 1:
    print(folder(), version(folder()), sep="\n")
else:
    for line in sys.stdin:
        name, zone, unit, anchor = line.split()
        (Path(sys.argv[1]) / name).write_text("".join(windows(zone, unit, anchor)))
