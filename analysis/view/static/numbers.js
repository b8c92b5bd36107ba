// Numbers with their units, for people.

export function seconds(value, span = value) {
  if (span < 0.02) return `${(value * 1000).toFixed(3)} ms`;
  if (span < 2) return `${(value * 1000).toFixed(1)} ms`;
  if (span < 120) return `${value.toFixed(2)} s`;
  if (span < 7200) return `${Math.floor(value / 60)} min ${(value % 60).toFixed(0).padStart(2, "0")} s`;
  return `${Math.floor(value / 3600)} h ${Math.floor((value % 3600) / 60).toString().padStart(2, "0")} min`;
}

/** A moment of a run's clock, with as many digits as the window that is seen needs. */
export function moment(value, window) {
  const digits = window < 0.05 ? 5 : window < 0.5 ? 4 : window < 5 ? 3 : 2;
  if (window < 300) return `${value.toFixed(digits)} s`;
  const padded = (number) => String(Math.floor(number)).padStart(2, "0");
  if (window < 7200) return `${Math.floor(value / 60)}:${padded(value % 60)} min`;
  return `${Math.floor(value / 3600)}:${padded((value % 3600) / 60)} h`;
}

export function rate(bps) {
  if (bps === null || bps === undefined) return "–";
  if (bps >= 1e9) return `${+(bps / 1e9).toPrecision(3)} Gbit/s`;
  if (bps >= 1e6) return `${+(bps / 1e6).toPrecision(3)} Mbit/s`;
  return `${+(bps / 1e3).toPrecision(3)} kbit/s`;
}

export function size(bytes) {
  if (bytes >= 1e9) return `${+(bytes / 1e9).toPrecision(3)} GB`;
  if (bytes >= 1e6) return `${+(bytes / 1e6).toPrecision(3)} MB`;
  if (bytes >= 1e3) return `${+(bytes / 1e3).toPrecision(3)} kB`;
  return `${bytes} B`;
}

export function share(value) {
  return value === null || value === undefined ? "–" : `${(value * 100).toFixed(1)} %`;
}

const MINUTES = [1, 2, 5, 10, 20, 30, 60, 120, 240, 480, 1440].map((minutes) => 60 * minutes);

/** Steps of an axis in seconds: round numbers, or whole minutes, at most `count` of them from `low` to `high`. */
export function steps(low, high, count) {
  const raw = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const decimal = [1, 2, 5, 10].map((factor) => factor * power);
  const step = (raw > 30 ? MINUTES : decimal).find((each) => each >= raw) ?? raw;
  const found = [];
  for (let value = Math.ceil(low / step) * step; value <= high; value += step) found.push(value);
  return found;
}
