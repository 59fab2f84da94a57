// Download the page's values as CSV, with the columns of `shuffledp result --csv`.

function withoutFormula(text) {
  // An apostrophe keeps a spreadsheet from running text as a formula; numbers need none.
  if (/^-?[0-9]+(\.[0-9]+)?$/.test(text)) return text;
  // A spreadsheet may split lines at other separators and start a cell inside a label, despite quotes.
  const safe = text.replace(/([;,\t\r\n]"*)(?=[=+\-@])/g, "$1'");
  return /^[=+\-@\t\r]/.test(safe) ? "'" + safe : safe;
}

function quoted(text) {
  return '"' + withoutFormula(text).replaceAll('"', '""') + '"';
}

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

function download() {
  const link = element("a");
  link.href = URL.createObjectURL(new Blob([asCsv()], { type: "text/csv" }));
  link.download = "histogram.csv";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
