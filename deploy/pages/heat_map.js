// A heat map of the chosen table of two attributes, with a tooltip for each cell.

const canvas = byId("heat-map"), chosenTable = byId("table"), swapped = byId("swap");
const tables = given.tables.map((table) => ({
  ...table,
  ...Object.fromEntries(["share", "low", "high", "truth"].map((key) => [key, table[key] === null ? null : unpacked(table[key], Float32Array)])),
}));
const LONGEST = 0.3;  // part of the width for the names of rows
let frame = null;
let pointed = null;

// The chosen table, as shown: its rows and columns, and the number of a cell.
function shown() {
  const table = tables[chosenTable.value], [first, second] = table.attributes.map((a) => given.attributes[a]);
  const [rows, columns] = swapped.checked ? [second, first] : [first, second];
  const cell = swapped.checked ? (i, j) => j * second.values.length + i : (i, j) => i * second.values.length + j;
  return { table, rows, columns, cell };
}

function channels(name) {
  return colour(name).match(/[\d.]+/g).slice(0, 3).map(Number);
}

// Square roots spread the colours, since most cells of a table are small.
function shades(most) {
  const from = channels("--paper"), to = channels("--accent");
  return (share) => {
    const part = Math.sqrt(Math.max(0, share) / most);
    return from.map((low, k) => Math.round(low + part * (to[k] - low)));
  };
}

const css = (rgb) => "rgb(" + rgb.join(" ") + ")";
const luminance = ([red, green, blue]) => 0.299 * red + 0.587 * green + 0.114 * blue;

// The longest start of a text that fits.
function fitted(context, text, room) {
  if (context.measureText(text).width <= room) return text;
  let end = text.length;
  while (end > 1 && context.measureText(text.slice(0, end) + "…").width > room) end--;
  return text.slice(0, end) + "…";
}

function draw() {
  const { table, rows, columns, cell } = shown(), [n, m] = [rows.values.length, columns.values.length];
  const measure = canvas.getContext("2d");
  const widest = (names) => Math.max(...names.slice(0, 500).map((name) => measure.measureText(name).width));
  measure.font = "12px " + getComputedStyle(painted).fontFamily;
  const left = Math.min(LONGEST * canvas.clientWidth, widest(rows.values) + 10);
  const wide = (canvas.clientWidth - left) / m;
  const upright = widest(columns.values) + 8 <= wide;
  const top = upright ? 20 : Math.min(110, widest(columns.values) + 8);
  const high = Math.min(n > 20 ? 20 : 36, Math.max(n > 60 ? 4 : 16, wide));
  const { context } = clearedCanvas(canvas, Math.ceil(top + n * high + 2));
  frame = { left, top, wide, high, n, m };
  const shade = shades(Math.max(1e-9, ...table.share)), digits = digitsFor(table.error);
  const most = Math.max(...table.share), room = (k) => high >= 16 && context.measureText(percent(most, k)).width + 6 <= wide;
  const decimals = [2, 1].map((k) => Math.min(k, digits)).find(room);
  for (let i = 0; i < n; i++) {
    for (let j = 0; j < m; j++) {
      const share = table.share[cell(i, j)], rgb = shade(share);
      const [x, y] = [left + j * wide, top + i * high], gap = Math.min(wide, high) > 6 ? 1 : 0;
      context.fillStyle = css(rgb);
      context.fillRect(x, y, wide - gap, high - gap);
      context.textAlign = "center";
      if (share < 0) {
        context.fillStyle = colour("--second");
        context.fillRect(x + wide / 2 - Math.min(5, wide / 4), y + high / 2 - 1, Math.min(10, wide / 2), 2);
      } else if (decimals !== undefined) {
        context.fillStyle = luminance(rgb) > 120 ? "#1a1f27" : "#ffffff";
        context.fillText(percent(share, decimals), x + wide / 2, y + high / 2);
      }
    }
  }
  drawNames(context, rows.values, columns.values, upright);
  if (pointed !== null) {
    context.strokeStyle = colour("--second");
    context.lineWidth = 2;
    context.strokeRect(left + pointed[1] * wide, top + pointed[0] * high, wide, high);
  }
  canvas.dataset.drawn = String(n * m);
  drawScale(shade, most, digits);
  byId("below").hidden = table.share.every((share) => share >= 0);
}

// Name rows and columns; leave out names where there is no room for all.
function drawNames(context, rows, columns, upright) {
  const { left, top, wide, high } = frame, every = (size) => Math.max(1, Math.ceil(13 / size));
  context.fillStyle = colour("--ink");
  context.textAlign = "right";
  for (let i = 0; i < rows.length; i += every(high)) {
    context.fillText(fitted(context, rows[i], left - 8), left - 6, top + (i + 0.5) * high);
  }
  for (let j = 0; j < columns.length; j += upright ? 1 : every(wide)) {
    context.save();
    context.translate(left + (j + 0.5) * wide, top - (upright ? 10 : 5));
    context.textAlign = upright ? "center" : "left";
    if (!upright) context.rotate(-Math.PI / 2);
    context.fillText(fitted(context, columns[j], upright ? wide : top - 8), 0, 0);
    context.restore();
  }
}

function drawScale(shade, most, digits) {
  const stops = Array.from({ length: 9 }, (_, k) => css(shade((k / 8) ** 2 * most)));
  byId("scale-bar").style.background = "linear-gradient(to right, " + stops.join(", ") + ")";
  [0, 1, 2].forEach((k) => { byId("scale-" + k).textContent = percent((k / 2) ** 2 * most, Math.min(digits, 2)); });
}

function figuresOf(i, j) {
  const { table, rows, columns, cell } = shown(), k = cell(i, j), digits = digitsFor(table.error);
  const entries = [
    ["Share", percent(table.share[k], digits)],
    [levelName(" interval"), interval(table.low[k], table.high[k], digits)],
    ["Users", userInterval(table.low[k], table.high[k])],
  ];
  if (table.truth !== null) entries.push(["Truth", percent(table.truth[k], digits)]);
  return { names: [[rows.name, rows.values[i]], [columns.name, columns.values[j]]], entries, below: table.share[k] < 0 };
}

function point(i, j, x, y) {
  pointed = [i, j];
  const { names, entries, below } = figuresOf(i, j);
  const nodes = names.map(([attribute, value]) => named(attribute + ": " + value, "div"));
  nodes.push(figureList(entries));
  if (below) nodes.push(element("p", "Below 0 by noise; shown as 0."));
  placeTooltip(nodes, x, y);
  canvas.setAttribute("aria-label", [...names, ...entries].map((each) => each.join(" ")).join(", "));
  soon();
}

function leave() {
  hideTooltip();
  pointed = null;
  soon();
}

canvas.addEventListener("pointermove", (event) => {
  if (frame === null) return;
  const { left, top, wide, high, n, m } = frame;
  const i = Math.floor((event.offsetY - top) / high), j = Math.floor((event.offsetX - left) / wide);
  if (i < 0 || j < 0 || i >= n || j >= m) return leave();
  point(i, j, event.clientX, event.clientY);
});
canvas.addEventListener("pointerleave", leave);
canvas.addEventListener("blur", leave);
canvas.addEventListener("keydown", (event) => {
  const moves = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] };
  if (!(event.key in moves) || frame === null) return;
  event.preventDefault();
  const { left, top, wide, high, n, m } = frame, [down, right] = moves[event.key];
  const i = pointed === null ? 0 : Math.min(n - 1, Math.max(0, pointed[0] + down));
  const j = pointed === null ? 0 : Math.min(m - 1, Math.max(0, pointed[1] + right));
  const box = canvas.getBoundingClientRect();
  point(i, j, box.left + left + (j + 0.5) * wide, box.top + top + (i + 0.5) * high);
});

// The cells of the chosen table, with the columns of `shuffledp result --csv`.
function tableAsCsv() {
  const { table, rows, columns, cell } = shown();
  const lines = ["attribute,value,other_attribute,other_value,share,standard_error,interval_low,interval_high"];
  rows.values.forEach((row, i) => columns.values.forEach((column, j) => {
    const k = cell(i, j), figures = [table.share[k], table.error, table.low[k], table.high[k]];
    lines.push([...[rows.name, row, columns.name, column].map(quoted), ...figures.map((figure) => figure.toPrecision(7))].join(","));
  }));
  return lines.join("\r\n") + "\r\n";
}

tables.forEach(({ attributes }, number) => {
  const option = element("option", attributes.map((a) => given.attributes[a].name).join(" × "));
  option.value = String(number);
  chosenTable.append(option);
});
const soon = redrawOnChange(canvas, draw);
for (const control of [chosenTable, swapped]) control.addEventListener("change", leave);
byId("download").addEventListener("click", () => {
  const { rows, columns } = shown();
  download(tableAsCsv(), rows.name + "-" + columns.name);
});
byId("heat-maps").hidden = false;
soon();
