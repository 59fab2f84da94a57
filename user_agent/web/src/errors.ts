/**
 * The device's errors, with the names and statuses of common/errors.py.
 *
 * Every sentence stands in messages.json. A sentence states the rule and the public number that
 * broke it, never a person's value, a report's content or key bytes.
 */

import { messages } from "./messages";

export type MessageKey = keyof typeof messages;
export type Parameters = Readonly<Record<string, string | number | bigint>>;

/** Base of all expected failures. */
export class ShuffleDpError extends Error {
  override readonly name: string = "ShuffleDpError";
  /** Name of the gRPC status. */
  readonly status: string = "INTERNAL";
  /** What another party wrote as its reason, which no sentence of this device repeats. */
  readonly reason: string;

  constructor(
    readonly key: MessageKey,
    { reason = "", ...parameters }: Parameters = {},
    options?: ErrorOptions,
  ) {
    super(sentence(key, parameters), options);
    this.reason = String(reason);
  }
}

export function sentence(key: MessageKey, parameters: Parameters = {}): string {
  return filled(messages[key], parameters);
}

/** Fill the parameters of a text in. */
export function filled(text: string, parameters: Parameters): string {
  return text.replace(/\{(\w+)\}/g, (_, name) => String(parameters[name]));
}

/** Return a subclass with this name and status, which minifying must not change. */
function kind(name: string, status: string, base: typeof ShuffleDpError = ShuffleDpError) {
  return class extends base {
    override readonly name: string = name;
    override readonly status: string = status;
  };
}

/** A task breaks a rule. */
export class TaskError extends kind("TaskError", "INVALID_ARGUMENT") {}
/** Raise TaskError unless a rule of tasks holds. */
export function ensure(holds: unknown, key: MessageKey, parameters?: Parameters): asserts holds {
  if (!holds) throw new TaskError(key, parameters);
}

/** Bytes from outside are malformed: a message, a key, or a ciphertext. */
export class WireError extends kind("WireError", "INVALID_ARGUMENT") {}
/** A person's value lies outside the task's domain; the message never repeats the value. */
export class ValueRangeError extends kind("ValueRangeError", "INVALID_ARGUMENT") {}
/** The device's settings break a rule. */
export class SettingsError extends kind("SettingsError", "FAILED_PRECONDITION") {}
/** A task's or a blind signature does not verify, or an inclusion proof is invalid. */
export class ProofError extends kind("ProofError", "FAILED_PRECONDITION") {}
/** Too few pinned witnesses cosigned a checkpoint so far; safe to retry. */
export class WitnessQuorumError extends kind("WitnessQuorumError", "UNAVAILABLE", ProofError) {}
/** The log signed a head that is not proven to continue the last one. */
export class ForkError extends kind("ForkError", "FAILED_PRECONDITION", ProofError) {}
/** A task's deadline, claims, weights or mechanism break the device's policy. */
export class PolicyError extends kind("PolicyError", "FAILED_PRECONDITION") {}
/** An answer would exceed a privacy budget. */
export class BudgetError extends kind("BudgetError", "RESOURCE_EXHAUSTED") {}
/** The person has not answered a task with this digest. */
export class UnknownTaskError extends kind("UnknownTaskError", "NOT_FOUND") {}
/** The device's own storage is missing or failing. */
export class StorageError extends kind("StorageError", "UNAVAILABLE") {}
/** Another party did not answer in time, or its answer is invalid; safe to retry. */
export class PeerError extends kind("PeerError", "UNAVAILABLE") {}
/** Load a part of the page; raise PeerError if that cannot be had. */
export function loadPart<T>(loading: Promise<T>): Promise<T> {
  return loading.catch((cause) => Promise.reject(new PeerError("part_missing", {}, { cause })));
}

/** Another party is overloaded; retry later. */
export class PeerBusyError extends kind("PeerBusyError", "UNAVAILABLE", PeerError) {}
/** Another party is temporarily unable to serve, for example because its disk is full. */
export class PeerUnableError extends kind("PeerUnableError", "UNAVAILABLE", PeerError) {}
/** A proxy, or another program or version, refused the call; retrying seldom helps. */
export class ForeignReplyError extends kind("ForeignReplyError", "UNAVAILABLE", PeerError) {}

/** Another party refused the call; the status of the refusal is passed on. */
export class PeerRefusalError extends ShuffleDpError {
  override readonly name: string = "PeerRefusalError";
  override readonly status: string;

  constructor(whom: string, status: string, reason: string, key?: MessageKey) {
    super(key ?? "peer_refused", { whom, status, reason });
    this.status = status;
  }
}
