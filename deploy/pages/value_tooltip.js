// Tooltip with the figures of one value of a histogram.

// A value's label.
function nameElement(i, tag = "bdi") {
  return named(values.name(i), tag);
}

function lines(i) {
  const digits = digitsFor(values.error[i]);
  const entries = [
    ["Share", percent(values.estimate[i], digits)],
    [intervalName(), interval(values.low(i), values.high(i), digits)],
    ["Users", userInterval(values.low(i), values.high(i))],
    ["Refined", percent(values.refined[i], digits)],
  ];
  if (values.truth !== null) entries.push(["Truth", percent(values.truth[i], digits)]);
  return entries;
}

function intervalName() {
  return levelName(values.ends === intervals.own ? " interval" : " for all");
}

function asText(i) {
  const read = lines(i).map(([head, text]) => head + " " + text).join(", ");
  return values.name(i) + ": " + read + (values.unsure(i) ? ", does not differ clearly from 0" : "");
}

function showTooltip(i, x, y) {
  const nodes = [nameElement(i, "div")];
  if (values.labels !== null) nodes.push(element("div", "value number " + whole(values.item(i))));
  nodes.push(figureList(lines(i)));
  if (values.unsure(i)) nodes.push(element("p", "Does not differ clearly from 0."));
  placeTooltip(nodes, x, y);
}
