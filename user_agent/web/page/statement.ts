/** What a person is told before answering: what leaves the device, and how it is protected. */

import { type Claim, hasRelay } from "../src/account";
import { roundedUp, shareOf } from "../src/decimal";
import type { CheckedTask } from "../src/device";
import { centralTotal, coalitionTotal, localTotal } from "../src/policy";
import type { Task } from "../src/task/task";
import { type Constants, constants } from "./constants.js";
import { facts, paragraph, section } from "./dom";
import { percent, quantity, word } from "./words";

const witnesses = (count: number) => quantity(count, "witness", "witnesses");

/** Say what a report of the task holds. */
function reported({ mechanism, domainSize, viewSizes, edges }: Task): string {
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
    digits: quantity(viewSizes.length, "digit"),
  };
  const key = `${otherWeight ? "report" : "plain"} ${name}`;
  return word(key as "report grr", figures);
}

/** Say how many dummies are sent beside the reports of the answer. */
function added({ lengths, viewSizes }: Task): string {
  const own = viewSizes.length;
  const [least, most] = [(lengths[0] ?? own) - own, (lengths.at(-1) ?? own) - own];
  if (most === 0) return word("leaves_no_dummies");
  const all = quantity(most, "dummy report");
  const count = least < most ? `go ${least} to ${all}` : `${most > 1 ? "go" : "goes"} ${all}`;
  return word("leaves_dummies", { count });
}

/** Name a shuffler; what is not pinned is only what the analyzer calls it. */
const called = (name: string, pinned: string | null = null) =>
  name && (name === pinned ? `, ${name}` : word("called", { name }));

/** Describe what leaves the device, and who sees what. */
export function leaving(task: Task): HTMLElement {
  const { shuffler, relay, tokens, row, keep } = task;
  const drops = keep < 1 ? word("mixed_drops") : "";
  const adds = row.noise === "none" ? "" : word("mixed_adds");
  const { shuffler_name: first, relay_name: second }: Constants = constants;
  const names = { name: called(shuffler.name, first), mixed: drops + adds };
  return section(
    word("leaves"),
    paragraph(`${reported(task)} ${added(task)}`),
    paragraph(word("leaves_sealed", names)),
    relay && paragraph(word("leaves_relay", { name: called(relay.name, second) })),
    tokens && paragraph(word("leaves_token", { issuer: tokens.issuer })),
  );
}

/** Describe the guarantee in sentences, with its figures. */
export function protection({ task, isRecomputed, checkedBy }: CheckedTask): HTMLElement {
  const { localEpsilon: local, centralEpsilon: central, delta, relay } = task;
  const odds = (epsilon: number) => roundedUp(Math.exp(epsilon));
  const people = quantity(
    Math.max(1, shareOf(task.nMin, task.assumedHonestFraction)),
    "honest person",
    "honest people",
  );
  // It knows its own dummies, and could subtract them from results that it sees.
  const unseen = task.row.noise === "none" ? "" : word("protected_unseen");
  const figures = { people, unseen, odds: odds(central), delta: roundedUp(delta) };
  const honest = word(relay ? "protected_honest" : "protected_central", figures);
  const alone = Number.isFinite(local) ? word("protected_alone", { odds: odds(local) }) : "";
  return section(
    word("protected"),
    central < local ? paragraph(honest) : null,
    relay && paragraph(word("protected_either", { ...figures, odds: odds(task.coalitionEpsilon) })),
    paragraph(alone || word(relay ? "protected_both" : "protected_never")),
    central < local ? null : paragraph(word("protected_local")),
    paragraph(
      isRecomputed
        ? word("protected_recomputed")
        : word("protected_witnessed", { witnesses: witnesses(checkedBy) }),
    ),
    facts(
      [
        [word("account_local"), roundedUp(local)],
        [word("account_coalition"), relay ? roundedUp(task.coalitionEpsilon) : ""],
        [word("account_central"), roundedUp(central)],
        [word("account_delta"), roundedUp(delta)],
      ],
      "figures",
    ),
  );
}

/** Say who vouches for the task, and who has to be trusted with the page itself. */
export function vouching({ cosigners }: CheckedTask): HTMLElement {
  const { witnesses: all, witness_quorum: quorum, trial }: Constants = constants;
  return section(
    word("vouched"),
    paragraph(word("vouched_log", { cosigners, witnesses: witnesses(all.length), quorum })),
    paragraph(word(trial ? "vouched_trial" : "vouched_publisher", { host: location.host })),
  );
}

/** Show what earlier answers have spent, with the claim of one more if there is one. */
export function spending(
  claims: readonly Claim[],
  isPersistent: boolean,
  more: Claim | null,
): HTMLElement {
  const { total_delta_cap: delta, total_coalition_epsilon_cap: coalition } = constants;
  const after = more ? [...claims, more] : claims;
  const of = (spent: number, cap: number) =>
    Number.isFinite(cap)
      ? word("account_cap", { spent: roundedUp(spent), cap: roundedUp(cap) })
      : roundedUp(spent);
  const answers = quantity(claims.length, "answer");
  return section(
    word("account"),
    paragraph(claims.length ? word("account_given", { answers }) : word("account_empty")),
    more && paragraph(word("account_after")),
    facts(
      [
        [word("account_local"), of(localTotal(after), constants.total_local_epsilon_cap)],
        [word("account_coalition"), of(coalitionTotal(after, delta), coalition)],
        [
          word("account_central"),
          of(centralTotal(after, delta), constants.total_central_epsilon_cap),
        ],
      ],
      "figures",
    ),
    after.some(hasRelay) ? paragraph(word("account_relay")) : null,
    paragraph(word("account_limit")),
    isPersistent ? null : paragraph(word("account_forgets")),
  );
}
