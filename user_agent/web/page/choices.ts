/** The controls with which a person chooses an answer. */

import { GROUP_SEPARATOR } from "../src/task/domain";
import type { Task } from "../src/task/task";
import type { Value } from "../src/values";
import { element } from "./dom";
import { quantity, word } from "./words";

const MOST_BUTTONS = 12;
const MOST_SHOWN = 200;

/** Controls, and how to read them. */
interface Control<T> {
  readonly parts: readonly HTMLElement[];
  /** Return what is chosen; null if nothing is. */
  read(): T | null;
}

/** Return the controls of a task: of its group, if it has a breakdown, and of its answer. */
export function choicesOf(task: Task): Control<Value> {
  const { breakdown, edges, groups } = task;
  const size = task.domainSize / groups;
  const { numbers: count, low, high } = task.mechanism;
  if (count > 0) {
    const numbers = task.labels.join(", ") || quantity(count, "number");
    const hint = word(count > 1 ? "answer_numbers" : "answer_number", { low, high, unit: "", numbers }); // biome-ignore format: one step
    return numberInput(hint, "any", count > 1 ? "text" : "number");
  }
  const answer = edges
    ? numberInput(
        word("answer_number", { low: edges.low, high: edges.high, unit: edges.unit }),
        "any",
      )
    : itemControl(task.valueLabels, size);
  if (breakdown === null) return answer;
  const { attribute, groups: names } = breakdown;
  const group = groupList(attribute, names);
  return {
    parts: [...group.parts, ...answer.parts],
    read() {
      const [place, chosen] = [group.read(), answer.read()];
      if (place === null || chosen === null) return null;
      if (typeof chosen === "number") return place * size + chosen;
      return `${names[place]}${GROUP_SEPARATOR}${chosen}`;
    },
  };
}

function itemControl(labels: readonly string[], size: number): Control<Value> {
  if (size <= MOST_BUTTONS) {
    return buttons(Array.from({ length: size }, (_, item) => labels[item] ?? String(item)));
  }
  if (labels.length) return searchableList(labels);
  const { parts, read } = numberInput(word("answer_item", { most: size - 1 }), "1");
  return { parts, read: () => numberIn(read() ?? "") };
}

function numberIn(text: string): number | null {
  return text === "" ? null : Number(text);
}

function buttons(labels: readonly string[]): Control<number> {
  const inputs = labels.map(() => element("input", { type: "radio", name: "answer" }));
  const rows = labels.map((label, item) => {
    const name = element("bdi", {}, label || word("answer_empty"));
    return element("label", { className: "choice" }, inputs[item] ?? null, name);
  });
  const legend = element("legend", {}, word("answer"));
  return {
    parts: [element("fieldset", { className: "choices" }, legend, ...rows)],
    read() {
      const chosen = inputs.findIndex((input) => input.checked);
      return chosen < 0 ? null : chosen;
    },
  };
}

function options(labels: readonly string[], items: Iterable<number>): HTMLElement[] {
  return [...items].map((item) =>
    element("option", { value: String(item) }, labels[item] || word("answer_empty")),
  );
}

function groupList(attribute: string, names: readonly string[]): Control<number> {
  const none = element("option", { value: "" }, word("choose"));
  const select = element("select", { id: "group" }, none, ...options(names, names.keys()));
  const label = element("label", { htmlFor: "group" }, word("group", { attribute }));
  return { parts: [label, select], read: () => numberIn(select.value) };
}

/** A list too long for buttons, narrowed by a text. */
function searchableList(labels: readonly string[]): Control<number> {
  const search = element("input", { type: "search", id: "search", autocomplete: "off" });
  const select = element("select", { id: "answer", size: 8 });
  const count = element("p", { className: "muted", role: "status" });
  const lower = labels.map((label) => label.toLowerCase());
  const show = () => {
    const wanted = search.value.trim().toLowerCase();
    const found = [...lower.keys()].filter((item) => lower[item]?.includes(wanted));
    select.replaceChildren(...options(labels, found.slice(0, MOST_SHOWN)));
    const all = quantity(found.length, "possible answer");
    const isCut = found.length > MOST_SHOWN;
    const text = isCut ? "answer_found_most" : "answer_found";
    count.textContent = word(text, { found: all, most: MOST_SHOWN });
  };
  search.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    select.focus();
    if (select.options.length === 1) select.selectedIndex = 0;
  });
  search.addEventListener("input", show);
  show();
  const title = element("label", { htmlFor: "search" }, word("answer_find"));
  const label = element("label", { htmlFor: "answer" }, word("answer"));
  return { parts: [title, search, count, label, select], read: () => numberIn(select.value) };
}

function numberInput(hint: string, step: string, type = "number"): Control<string> {
  const input = element("input", { type, id: "answer", step, autocomplete: "off" });
  const described = element("p", { className: "muted", id: "hint" }, hint);
  input.setAttribute("aria-describedby", "hint");
  const label = element("label", { htmlFor: "answer" }, word("answer"));
  return { parts: [label, described, input], read: () => input.value || null };
}
