/** The words of the page, which stand in words.json, and the forms of figures in them. */

import { filled, type Parameters } from "../src/errors";
import type { Task } from "../src/task/task";
import words from "./words.json";

/** Return a text with its parameters filled in. */
export function word(key: keyof typeof words, parameters: Parameters = {}): string {
  return filled(words[key], parameters);
}

/** Begin a sentence with a capital, and end it with a full stop. */
export function asSentence(text: string): string {
  return `${text.charAt(0).toUpperCase()}${text.slice(1)}.`.replace(/([.?!])\.$/, "$1");
}

export function moment(seconds: number): string {
  const format = { dateStyle: "long", timeStyle: "short" } as const;
  return new Date(1000 * seconds).toLocaleString("en", format);
}

/** Write a count with its noun, such as "1 report" and "1200 reports". */
export function quantity(count: number, noun: string, plural = `${noun}s`): string {
  return `${count.toLocaleString("en")} ${count === 1 ? noun : plural}`;
}

/** Write a probability as a percentage, with three digits of what is smaller, it or the rest. */
export function percent(part: bigint, whole: bigint): string {
  const share = (each: bigint) => (100 * Number(each)) / Number(whole);
  const least = Math.min(share(part), share(whole - part)) || 1;
  const places = Math.min(100, Math.max(0, 2 - Math.floor(Math.log10(least))));
  return `${Number(share(part).toFixed(places))}%`;
}

/** Say what a report of the task holds. */
export function reported({ mechanism, domainSize, viewSizes, edges, row }: Task): string {
  const { name, trueWeight, otherWeight, buckets } = mechanism;
  const total = trueWeight + BigInt(buckets - 1) * otherWeight;
  const range = edges && word("range");
  const figures = {
    it: range ?? word("it"),
    what: range ?? word("your_answer"),
    truth: percent(trueWeight, total),
    lie: percent(total - trueWeight, total),
    own: percent(trueWeight, trueWeight + otherWeight),
    yes: percent(otherWeight, trueWeight + otherWeight),
    items: quantity(domainSize, "possible answer"),
    groups: quantity(buckets, "group"),
    views: viewSizes.length,
    others: word(row.noise === "none" ? "hidden_by_people" : "hidden_by_shuffler"),
    digits: quantity(viewSizes.length, "digit"),
  };
  const key = `${otherWeight ? "report" : "plain"} ${name}`;
  return word(key as "report grr", figures);
}
