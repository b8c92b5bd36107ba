"""What packets and flows have in common: functions over records of numbers, by Python or compiled, beside the clock."""
