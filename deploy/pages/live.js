// The live page: asks its server now and then, and shows the words that it gives.

const byId = (id) => document.getElementById(id);
const given = JSON.parse(document.getElementById("page-data").textContent);

function show(batch) {
  byId("batch").hidden = false;
  for (const id of ["users", "aim", "forecast", "verdict", "repeated"]) byId(id).textContent = batch[id];
  // Said aloud where it changes only.
  for (const id of ["state", "explanation"]) if (byId(id).textContent !== batch[id]) byId(id).textContent = batch[id];
  document.body.dataset.tone = batch.tone;
  byId("verdict").dataset.outlook = batch.outlook;
  document.title = batch.users + " users \u2013 " + batch.state;
  byId("filled").style.width = batch.filled + "%";
  byId("mark").style.left = batch.mark + "%";
  byId("track").setAttribute("aria-valuenow", String(batch.filled));
  byId("track").setAttribute("aria-valuetext", batch.users + " users, " + batch.aim);
  byId("left").textContent = batch.left;
  byId("deadline").textContent = batch.deadline;
  byId("refused").replaceChildren(...batch.refused.map(refusedRow));
  showChart(batch.chart);
}

function refusedRow({ name, why, number }) {
  const row = document.createElement("tr");
  const head = document.createElement("th");
  head.scope = "row";
  head.textContent = name;
  const reason = document.createElement("span");
  reason.className = "why";
  reason.textContent = why;
  head.append(reason);
  const cell = document.createElement("td");
  cell.className = "number";
  cell.textContent = number;
  row.append(head, cell);
  return row;
}

function showChart(samples) {
  const first = samples[0], last = samples[samples.length - 1];
  const span = Math.max(1, -first[0]);
  const rise = Math.max(1, last[1] - first[1]);
  const at = ([seconds, users]) => (400 * (1 + seconds / span)).toFixed(1) + " " + (100 - 80 * (users - first[1]) / rise).toFixed(1);
  const curve = samples.length < 2 ? "" : "M" + samples.map(at).join("L");
  byId("curve").setAttribute("d", curve);
  byId("area").setAttribute("d", curve && curve + "V100H0Z");
  byId("from").textContent = span < 90 ? Math.round(span) + " s ago" : Math.round(span / 60) + " min ago";
  byId("most").textContent = "+" + (last[1] - first[1]).toLocaleString("en") + " users";
}

function complain(text) {
  byId("trouble").hidden = text === "";
  if (byId("trouble").textContent !== text) byId("trouble").textContent = text;
}

async function ask() {
  let over = false;
  try {
    const answer = await fetch("progress.json", { cache: "no-store" });
    if (!answer.ok) throw new Error(answer.statusText);
    const { trouble, batch } = await answer.json();
    complain(trouble);
    if (batch !== null) show(batch);
    over = batch !== null && batch.over;
  } catch {
    complain("This page\u2019s own server does not answer: it may have been stopped. What is shown is what it said last.");
  }
  if (!over) setTimeout(ask, 1000 * given.poll_seconds);
}

ask();
