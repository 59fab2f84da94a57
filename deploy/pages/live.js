// The live page: asks its server now and then, and shows the batch that it renders.

const byId = (id) => document.getElementById(id);
const given = JSON.parse(byId("page-data").textContent);

// Screen readers say these aloud: only where they change.
function say(id, text) {
  if (byId(id).textContent !== text) byId(id).textContent = text;
}

function show(batch) {
  say("state", batch.state);
  say("explanation", batch.explanation);
  document.body.dataset.tone = batch.tone;
  document.title = batch.users + " users \u2013 " + batch.state;
  byId("batch").innerHTML = batch.html;  // escaped by the server; the page's policy runs no script
}

function complain(text) {
  byId("trouble").hidden = text === "";
  say("trouble", text);
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
    complain("This page\u2019s own server does not answer: it may have been stopped. The figures are from its last answer.");
  }
  if (!over) setTimeout(ask, 1000 * given.poll_seconds);
}

ask();
