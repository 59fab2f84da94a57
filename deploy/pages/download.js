// The values as a CSV file, made here of what the page holds.

function quoted(text) {
  // What a spreadsheet would run as a formula is kept from it by an apostrophe; numbers are none.
  const safe = /^[=+\-@\t\r]/.test(text) && !/^-?\d+(\.\d+)?$/.test(text) ? "'" + text : text;
  return '"' + safe.replaceAll('"', '""') + '"';
}

function asCsv() {
  const heads = [...given.columns];
  if (values.truth !== null) heads.push("truth");
  const rows = [heads.join(",")];
  for (let i = 0; i < values.held; i++) {
    const figures = [values.estimate[i], values.error[i], values.low(i), values.high(i), values.refined[i]];
    if (values.truth !== null) figures.push(values.truth[i]);
    const label = values.labels === null ? "" : quoted(values.labels[i]);
    rows.push([values.item(i), label, ...figures.map((figure) => figure.toPrecision(7))].join(","));
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
