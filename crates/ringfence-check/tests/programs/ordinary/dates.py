# profiles: basic, data_science, network, filesystem, strict
import calendar
import datetime
from datetime import date, timedelta, timezone

start = date(2024, 2, 28)
print(start + timedelta(days=2), (date(2024, 12, 24) - start).days, start.strftime("%Y-%m-%d"))
print(datetime.datetime(2024, 1, 1, tzinfo=timezone.utc).isoformat(), calendar.isleap(2024))
print(datetime.datetime.strptime("2024-05-06", "%Y-%m-%d").weekday(), datetime.time(1, 2).minute)
