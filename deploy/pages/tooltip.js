// The small window that reads one value.

const tooltip = document.getElementById("tooltip");

function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

// Text of anybody's, in whatever direction it is written; never read as markup.
function nameElement(i, tag = "bdi") {
  const made = element(tag, values.name(i), "name");
  made.dir = "auto";
  return made;
}

function lines(i) {
  const digits = digitsFor(values.error[i]);
  const found = [
    ["Share", percent(values.estimate[i], digits)],
    [intervalName(), interval(i, digits)],
    ["Users", userInterval(i)],
    ["Refined", percent(values.refined[i], digits)],
  ];
  if (values.truth !== null) found.push(["Truth", percent(values.truth[i], digits)]);
  return found;
}

function intervalName() {
  const level = Math.round(1e6 * given.confidence) / 1e4 + "\u202f%";
  return values.factor === given.interval_factors.own ? level + " interval" : level + " for all";
}

function asText(i) {
  const read = lines(i).map(([head, text]) => head + " " + text).join(", ");
  return values.name(i) + ": " + read + (values.unsure(i) ? ", not distinguishable from none" : "");
}

function showTooltip(i, x, y) {
  tooltip.replaceChildren(nameElement(i, "div"));
  if (values.labels !== null) tooltip.append(element("div", "value number " + whole(values.item(i))));
  const list = element("dl");
  for (const [head, text] of lines(i)) list.append(element("dt", head), element("dd", text));
  tooltip.append(list);
  if (values.unsure(i)) tooltip.append(element("p", "Not distinguishable from none."));
  tooltip.hidden = false;
  shownAt = window.scrollY;
  const { width, height } = tooltip.getBoundingClientRect();
  const left = Math.min(x + 14, window.innerWidth - width - 8);
  const top = y + 18 + height > window.innerHeight ? y - height - 12 : y + 18;
  tooltip.style.left = Math.max(8, left) + "px";
  tooltip.style.top = Math.max(8, top) + "px";
}

// The page may report late that it was scrolled to where the tooltip was shown.
let shownAt = 0;

function hideTooltip() {
  tooltip.hidden = true;
}
addEventListener("keydown", (event) => { if (event.key === "Escape") hideTooltip(); });
addEventListener("scroll", () => { if (window.scrollY !== shownAt) hideTooltip(); }, { passive: true });
