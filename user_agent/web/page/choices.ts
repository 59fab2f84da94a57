/** The controls with which a person chooses an answer. */

import { type Attribute, GROUP_SEPARATOR } from "../src/task/domain";
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

/** Return the controls of a task: of each attribute; or of its answer, and of its group if any. */
export function choicesOf(task: Task): Control<Value> {
  const { breakdown, edges, groups, valueLabels: labels } = task;
  const size = task.domainSize / groups;
  const { numbers: count, low, high, attributes } = task.mechanism;
  if (attributes.length) return together(attributes);
  if (count > 0) {
    const numbers = task.labels.join(", ") || quantity(count, "number");
    const hint = word(count > 1 ? "answer_numbers" : "answer_number", { low, high, unit: "", numbers }); // biome-ignore format: one step
    return numberInput(word("answer"), "answer", hint, "any", count > 1 ? "text" : "number");
  }
  const answer = answerControl({ name: word("answer"), edges, labels, size }, "answer");
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

/** Return the controls of all attributes, each under its name. */
function together(attributes: readonly Attribute[]): Control<Value> {
  const controls = attributes.map((one, place) => answerControl(one, `answer${place}`));
  return {
    parts: controls.flatMap(({ parts }) => parts),
    read() {
      const chosen = controls.flatMap(({ read }) => read() ?? []);
      return chosen.length < controls.length ? null : chosen;
    },
  };
}

function answerControl(answers: Attribute, id: string): Control<number | string> {
  const { name, edges, labels, size } = answers;
  if (edges) {
    const { low, high, unit } = edges;
    return numberInput(name, id, word("answer_number", { low, high, unit }), "any");
  }
  if (size <= MOST_BUTTONS) {
    const shown = Array.from({ length: size }, (_, item) => labels[item] ?? String(item));
    return buttons(name, id, shown);
  }
  if (labels.length) return searchableList(name, id, labels);
  const { parts, read } = numberInput(name, id, word("answer_item", { most: size - 1 }), "1");
  return { parts, read: () => numberIn(read() ?? "") };
}

function numberIn(text: string): number | null {
  return text === "" ? null : Number(text);
}

function buttons(title: string, id: string, labels: readonly string[]): Control<number> {
  const inputs = labels.map(() => element("input", { type: "radio", name: id }));
  const rows = labels.map((label, item) => {
    const name = element("bdi", {}, label || word("answer_empty"));
    return element("label", { className: "choice" }, inputs[item] ?? null, name);
  });
  const legend = element("legend", {}, title);
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
function searchableList(name: string, id: string, labels: readonly string[]): Control<number> {
  const search = element("input", { type: "search", id: `${id}-search`, autocomplete: "off" });
  const select = element("select", { id, size: 8 });
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
  const title = element("label", { htmlFor: search.id }, word("answer_find"));
  const label = element("label", { htmlFor: id }, name);
  return { parts: [title, search, count, label, select], read: () => numberIn(select.value) };
}

function numberInput(
  name: string,
  id: string,
  hint: string,
  step: string,
  type = "number",
): Control<string> {
  const input = element("input", { type, id, step, autocomplete: "off" });
  const described = element("p", { className: "muted", id: `${id}-hint` }, hint);
  input.setAttribute("aria-describedby", described.id);
  const label = element("label", { htmlFor: id }, name);
  return { parts: [label, described, input], read: () => input.value || null };
}
