// Live page: polls its server, and shows the batch as the server rendered it.

const byId = (id) => document.getElementById(id);
const given = JSON.parse(byId("page-data").textContent);

// Screen readers announce these elements, so set only text that changed.
function announce(id, text) {
  if (byId(id).textContent !== text) byId(id).textContent = text;
}

function show(batch) {
  announce("state", batch.state);
  announce("explanation", batch.explanation);
  document.body.dataset.tone = batch.tone;
  document.title = batch.users + " users \u2013 " + batch.state;
  byId("batch").innerHTML = batch.html;  // escaped by the server; the page's policy runs no script
}

function showError(text) {
  byId("error").hidden = text === "";
  announce("error", text);
}

async function ask() {
  let over = false;
  try {
    const answer = await fetch("progress.json", { cache: "no-store" });
    if (!answer.ok) throw new Error(answer.statusText);
    const { error, batch } = await answer.json();
    showError(error);
    show(batch);
    over = batch.over;
  } catch {
    showError("This page\u2019s own server does not answer: it may have been stopped. The figures are from its last answer.");
  }
  if (!over) setTimeout(ask, 1000 * given.poll_seconds);
}

ask();
