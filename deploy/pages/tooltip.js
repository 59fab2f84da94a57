// Tooltip with the figures of one value.

const tooltip = document.getElementById("tooltip");

function element(tag, text, className) {
  const node = document.createElement(tag);
  if (text !== undefined) node.textContent = text;
  if (className) node.className = className;
  return node;
}

// A label: untrusted text in any writing direction, never parsed as markup.
function nameElement(i, tag = "bdi") {
  const node = element(tag, values.name(i), "name");
  node.dir = "auto";
  return node;
}

function lines(i) {
  const digits = digitsFor(values.error[i]);
  const entries = [
    ["Share", percent(values.estimate[i], digits)],
    [intervalName(), interval(i, digits)],
    ["Users", userInterval(i)],
    ["Refined", percent(values.refined[i], digits)],
  ];
  if (values.truth !== null) entries.push(["Truth", percent(values.truth[i], digits)]);
  return entries;
}

function intervalName() {
  const level = Math.round(1e6 * given.confidence) / 1e4 + "\u202f%";
  return values.ends === intervals.own ? level + " interval" : level + " for all";
}

function asText(i) {
  const read = lines(i).map(([head, text]) => head + " " + text).join(", ");
  return values.name(i) + ": " + read + (values.unsure(i) ? ", does not differ clearly from 0" : "");
}

function showTooltip(i, x, y) {
  tooltip.replaceChildren(nameElement(i, "div"));
  if (values.labels !== null) tooltip.append(element("div", "value number " + whole(values.item(i))));
  const list = element("dl");
  for (const [head, text] of lines(i)) list.append(element("dt", head), element("dd", text));
  tooltip.append(list);
  if (values.unsure(i)) tooltip.append(element("p", "Does not differ clearly from 0."));
  tooltip.hidden = false;
  shownAt = window.scrollY;
  const { width, height } = tooltip.getBoundingClientRect();
  const left = Math.min(x + 14, window.innerWidth - width - 8);
  const top = y + 18 + height > window.innerHeight ? y - height - 12 : y + 18;
  tooltip.style.left = Math.max(8, left) + "px";
  tooltip.style.top = Math.max(8, top) + "px";
}

// A scroll event may arrive after the tooltip is shown at the new position.
let shownAt = 0;

function hideTooltip() {
  tooltip.hidden = true;
}
addEventListener("keydown", (event) => { if (event.key === "Escape") hideTooltip(); });
addEventListener("scroll", () => { if (window.scrollY !== shownAt) hideTooltip(); }, { passive: true });
