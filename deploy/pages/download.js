// The values as a CSV file, made here of what the page holds: the columns of `shuffledp result --csv`.

function keptFromRunning(text) {
  // What a spreadsheet would run as a formula is kept from it by an apostrophe; numbers are none.
  if (/^-?[0-9]+(\.[0-9]+)?$/.test(text)) return text;
  // One that splits lines elsewhere begins a cell within the label; quotes do not hold it.
  const safe = text.replace(/([;,\t\r\n]"*)(?=[=+\-@])/g, "$1'");
  return /^[=+\-@\t\r]/.test(safe) ? "'" + safe : safe;
}

function quoted(text) {
  return '"' + keptFromRunning(text).replaceAll('"', '""') + '"';
}

function asCsv() {
  const heads = [...given.columns];
  if (values.truth !== null) heads.push("truth");
  const rows = [heads.join(",")];
  for (let i = 0; i < values.held; i++) {
    // Each value's own interval, whichever is shown: the headings say nothing of another.
    const [share, error] = [values.estimate[i], values.error[i]];
    const halfWidth = given.interval_factors.own * error;
    const figures = [share, error, share - halfWidth, share + halfWidth, values.refined[i]];
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
