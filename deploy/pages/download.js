// Write CSV, as `shuffledp result --csv` does, and download it.

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

function download(text, name) {
  const link = element("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  link.download = name + "-" + given.source + ".csv";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
