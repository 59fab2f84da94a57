// The histogram's values, decoded from the page's data, and their sort orders.

function unpackedEnds(packed) {
  const [low, high] = packed.map((ends) => unpacked(ends, Float32Array));
  return { low, high };
}

const intervals = { own: unpackedEnds(given.intervals.own), all: unpackedEnds(given.intervals.all) };

const values = {
  labels: given.labels,
  estimate: unpacked(given.estimate, Float32Array),
  error: unpacked(given.error, Float32Array),
  refined: unpacked(given.refined, Float32Array),
  truth: given.truth === null ? null : unpacked(given.truth, Float32Array),
  ends: intervals.own,

  get held() { return this.estimate.length; },
  item(i) { return items === null ? i : items[i]; },
  name(i) { return this.labels === null ? String(this.item(i)) : this.labels[i]; },
  low(i) { return this.ends.low[i]; },
  high(i) { return this.ends.high[i]; },
  // The simultaneous interval reaches 0, as it usually does for a value that nobody holds.
  unsure(i) { return intervals.all.low[i] <= 0; },
};
const items = given.items === null ? null : unpacked(given.items, Uint32Array);
const searchable = values.labels === null ? null : values.labels.map((label) => label.toLowerCase());

// Half the width of a typical interval, which separates noise from shares.
function typicalReach() {
  const sorted = values.ends.high.map((high, i) => (high - values.ends.low[i]) / 2).sort();
  return sorted[sorted.length >> 1] || sorted[sorted.length - 1] || 1e-9;
}

function width(i) {
  return intervals.own.high[i] - intervals.own.low[i];
}

const collator = new Intl.Collator("en", { numeric: true });
const ranks = {
  estimate: (a, b) => values.estimate[a] - values.estimate[b] || b - a,
  refined: (a, b) => values.refined[a] - values.refined[b] || values.estimate[a] - values.estimate[b] || b - a,
  width: (a, b) => width(a) - width(b) || b - a,
  label: values.labels === null || given.ordered
    ? (a, b) => a - b
    : (a, b) => collator.compare(values.labels[a], values.labels[b]),
};
const sortedOrders = {};

// All values in an order; cached, because sorting many names is slow.
function sorted(order, descending) {
  sortedOrders[order] ??= Uint32Array.from({ length: values.held }, (_, i) => i).sort(ranks[order]);
  return descending ? sortedOrders[order].slice().reverse() : sortedOrders[order];
}

// Match values by part of the name or the exact number; without names, by part of the number.
function matcher(text) {
  const query = text.trim().toLowerCase();
  if (query === "") return () => true;
  if (searchable === null) return (i) => String(values.item(i)).includes(query);
  return (i) => searchable[i].includes(query) || String(values.item(i)) === query;
}

// All values, with the columns of `shuffledp result --csv`.
function asCsv() {
  const heads = [...given.columns];
  if (values.truth !== null) heads.push("truth");
  const rows = [heads.join(",")];
  for (let i = 0; i < values.held; i++) {
    // Always each value's own interval, even if the page shows simultaneous ones.
    const [share, error] = [values.estimate[i], values.error[i]];
    const { low, high } = intervals.own;
    const figures = [share, error, low[i], high[i], values.refined[i]];
    if (values.truth !== null) figures.push(values.truth[i]);
    rows.push([values.item(i), quoted(values.name(i)), ...figures.map((figure) => figure.toPrecision(7))].join(","));
  }
  return rows.join("\r\n") + "\r\n";
}
