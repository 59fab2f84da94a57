// Controls of the result page, and the rows that they select.

const chosen = { order: given.ordered ? "label" : "estimate", descending: !given.ordered, text: "", distinct: false, page: 0, length: 15 };
let listed = new Uint32Array();

const showOverview = makeOverview(byId("overview"), (rank) => goTo(rank));

const axisNames = {
  estimate: "Rank by share (logarithmic)",
  refined: "Rank by refined share (logarithmic)",
  width: "Rank by width of the interval (logarithmic)",
  label: values.labels === null || given.ordered ? "Place by number" : "Place by name",
};

function list() {
  const matches = matcher(chosen.text);
  const distinct = chosen.distinct ? (i) => !values.unsure(i) : () => true;
  listed = sorted(chosen.order, chosen.descending).filter((i) => matches(i) && distinct(i));
}

function show() {
  const pages = Math.max(1, Math.ceil(listed.length / chosen.length));
  chosen.page = Math.min(chosen.page, pages - 1);
  const first = chosen.page * chosen.length;
  const shown = listed.slice(first, first + chosen.length);
  showRows(byId("rows"), byId("axis"), shown);
  byId("place").textContent = shown.length === 0
    ? "0 values"
    : whole(first + 1) + "\u2013" + whole(first + shown.length) + " of " + whole(listed.length);
  byId("previous").disabled = chosen.page === 0;
  byId("next").disabled = chosen.page >= pages - 1;
  showHeads();
  const all = sorted(chosen.order, chosen.descending);
  const part = listed.length < all.length;
  showOverview({
    order: all,
    logarithmic: chosen.order !== "label",
    matches: part ? new Set(listed) : null,
    first,
    length: shown.length,
    axis: axisNames[chosen.order],
  });
}

function showHeads() {
  byId("order").value = chosen.order;
  byId("direction").textContent = chosen.descending
    ? (chosen.order === "label" ? "Descending" : "Largest first")
    : (chosen.order === "label" ? "Ascending" : "Smallest first");
  for (const head of document.querySelectorAll("#bars .sort")) {
    const column = head.closest("th");
    if (head.dataset.order === chosen.order) column.setAttribute("aria-sort", chosen.descending ? "descending" : "ascending");
    else column.removeAttribute("aria-sort");
  }
  byId("interval-head").textContent = intervalName();
}

function showMatches() {
  let distinct = 0;
  for (let i = 0; i < values.held; i++) if (!values.unsure(i)) distinct++;
  const differ = distinct === 1 ? " shares differs" : " shares differ";
  const summary = whole(distinct) + " of " + whole(values.held) + differ + " clearly from 0.";
  byId("found").textContent = chosen.text.trim() === "" ? summary : whole(listed.length) + (listed.length === 1 ? " value matches." : " values match.");
}

function refresh() {
  list();
  show();
  showMatches();
}

function change(changes) {
  Object.assign(chosen, { page: 0 }, changes);
  refresh();
}

// Go to the row of a value in the overview, and highlight it.
function goTo(rank) {
  const i = sorted(chosen.order, chosen.descending)[rank];
  if (!listed.includes(i)) {
    byId("search").value = "";
    byId("shown").value = "any";
    Object.assign(chosen, { text: "", distinct: false });
    refresh();
  }
  chosen.page = Math.floor(listed.indexOf(i) / chosen.length);
  hideTooltip();
  show();
  const row = byId("rows").querySelector('[data-value="' + i + '"]');
  row.classList.add("chosen");
  row.scrollIntoView({ block: "center" });
}

function sortBy(order) {
  const same = order === chosen.order;
  change({ order, descending: same ? !chosen.descending : order !== "label" });
}

byId("search").addEventListener("input", (event) => change({ text: event.target.value }));
byId("order").addEventListener("change", (event) => change({ order: event.target.value, descending: event.target.value !== "label" }));
byId("direction").addEventListener("click", () => change({ descending: !chosen.descending }));
byId("shown").addEventListener("change", (event) => change({ distinct: event.target.value === "distinct" }));
byId("length").addEventListener("change", (event) => change({ length: Number(event.target.value) }));
byId("previous").addEventListener("click", () => { chosen.page--; show(); });
byId("next").addEventListener("click", () => { chosen.page++; show(); });
byId("download").addEventListener("click", () => download(asCsv(), "histogram"));
byId("simultaneous").addEventListener("change", (event) => {
  values.ends = event.target.checked ? intervals.all : intervals.own;
  refresh();
});
for (const head of document.querySelectorAll("#bars .sort")) {
  head.addEventListener("click", () => sortBy(head.dataset.order));
}
readRows(byId("rows"));
byId("browser").hidden = false;
// Hide the overview if all values fit on one page of rows.
byId("glance").hidden = values.held <= chosen.length;
refresh();
