// Histogram rows: one value each, with its bar, interval and figures.

const SVG = "http://www.w3.org/2000/svg";

function svgElement(tag, attributes) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

// Scale of the shown rows: covers 0 and everything drawn in them.
function barScale(shown) {
  let low = 0, high = 0;
  for (const i of shown) {
    low = Math.min(low, values.low(i), values.truth === null ? 0 : values.truth[i]);
    high = Math.max(high, values.high(i), values.refined[i], values.truth === null ? 0 : values.truth[i]);
  }
  const span = high - low || 1;
  const place = (share) => (100 * (share - low) / span).toFixed(3) + "%";
  const parts = window.innerWidth < 768 ? 3 : 4;
  const few = steps(low, high, parts);
  const ticks = few.length > 1 ? few : steps(low, high, 2 * parts);  // one tick is no scale
  return { place, ticks, step: stepOf(ticks) };
}

function drawAxis(axis, scale) {
  axis.replaceChildren();
  for (const share of scale.ticks) {
    const at = parseFloat(scale.place(share));
    const anchor = at < 5 ? "start" : at > 95 ? "end" : "middle";
    const text = svgElement("text", { x: scale.place(share), y: 12, "text-anchor": anchor, class: "tick" });
    text.textContent = tick(share, scale.step);
    axis.append(text, svgElement("line", { x1: scale.place(share), x2: scale.place(share), y1: 17, y2: 22, class: "zero" }));
  }
}

function picture(i, scale) {
  const node = svgElement("svg", { width: "100%", height: 30, "aria-hidden": "true" });
  for (const share of scale.ticks) {
    const x = scale.place(share);
    node.append(svgElement("line", { x1: x, x2: x, y1: 0, y2: 30, class: share === 0 ? "zero" : "grid" }));
  }
  const ends = [Math.min(0, values.estimate[i]), Math.max(0, values.estimate[i])].map((share) => parseFloat(scale.place(share)));
  node.append(svgElement("rect", {
    x: ends[0] + "%", width: ends[1] - ends[0] + "%", y: 5, height: 14,
    class: values.unsure(i) ? "bar faint" : "bar",
  }));
  const low = scale.place(values.low(i)), high = scale.place(values.high(i));
  node.append(svgElement("line", { x1: low, x2: high, y1: 12, y2: 12, class: "whisker" }));
  for (const x of [low, high]) node.append(svgElement("line", { x1: x, x2: x, y1: 8, y2: 16, class: "whisker" }));
  if (values.truth !== null) {
    const x = scale.place(values.truth[i]);
    node.append(svgElement("line", { x1: x, x2: x, y1: 2, y2: 22, class: "truth" }));
  }
  const mark = svgElement("svg", { x: scale.place(values.refined[i]), y: 23, overflow: "visible" });
  mark.append(svgElement("path", { d: "M0-5L5 0L0 5L-5 0Z", class: "diamond" }));
  node.append(mark);
  return node;
}

function cell(text, className, head) {
  const node = element("td", text, className);
  node.setAttribute("role", "cell");
  if (head) node.dataset.head = head;
  return node;
}

function row(i, scale, digits) {
  const node = element("tr", undefined, values.unsure(i) ? "unsure" : "");
  node.setAttribute("role", "row");
  node.tabIndex = -1;
  node.dataset.value = String(i);
  const name = cell(undefined, "");
  name.append(nameElement(i));
  if (values.unsure(i)) name.append(element("span", " (does not differ clearly from 0)", "hidden"));
  const chart = cell(undefined, "picture");
  chart.append(picture(i, scale));
  node.append(
    name,
    chart,
    cell(percent(values.estimate[i], digits), "number share"),
    cell(interval(values.low(i), values.high(i), digits), "number"),
    cell(users(values.estimate[i]), "number"),
    cell(percent(values.refined[i], digits), "number", "refined"),
  );
  if (values.truth !== null) node.append(cell(percent(values.truth[i], digits), "number", "truth"));
  return node;
}

function showRows(body, axis, shown) {
  const scale = barScale(shown);
  const errors = Array.from(shown, (i) => values.error[i]).sort((a, b) => a - b);
  const digits = digitsFor(errors[errors.length >> 1]);
  drawAxis(axis, scale);
  body.replaceChildren(...Array.from(shown, (i) => row(i, scale, digits)));
  if (body.firstElementChild) body.firstElementChild.tabIndex = 0;
  else {
    const columns = values.truth === null ? 6 : 7;
    const nothing = cell("No value matches.", "nothing");
    nothing.colSpan = columns;
    const node = element("tr");
    node.setAttribute("role", "row");
    node.append(nothing);
    body.append(node);
  }
}

// Show a row's tooltip under the pointer or at keyboard focus; arrow keys move the focus.
function readRows(body) {
  const at = (event) => event.target.closest("tr[data-value]");
  body.addEventListener("pointermove", (event) => {
    const row = at(event);
    if (row && event.pointerType !== "touch") showTooltip(Number(row.dataset.value), event.clientX, event.clientY);
  });
  body.addEventListener("pointerleave", hideTooltip);
  body.addEventListener("focusout", hideTooltip);
  body.addEventListener("focusin", (event) => {
    const row = at(event);
    if (!row || !row.matches(":focus-visible")) return;
    const box = row.getBoundingClientRect();
    showTooltip(Number(row.dataset.value), box.left + box.width / 3, box.bottom - 12);
  });
  body.addEventListener("keydown", (event) => {
    const row = at(event);
    const next = event.key === "ArrowDown" ? row?.nextElementSibling : event.key === "ArrowUp" ? row?.previousElementSibling : null;
    if (!next) return;
    event.preventDefault();
    row.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
}
