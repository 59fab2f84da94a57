/**
 * The device's errors, with the names and statuses of common/errors.py.
 *
 * Every sentence stands in messages.json. A sentence states the rule and the public number that
 * broke it, never a person's value, a report's content or key bytes.
 */

import messages from "./messages.json";

export type MessageKey = keyof typeof messages;
export type Parameters = Readonly<Record<string, string | number | bigint>>;

/** Base of all expected failures. */
export class ShuffleDpError extends Error {
  override readonly name: string = "ShuffleDpError";
  /** Name of the gRPC status. */
  readonly status: string = "INTERNAL";

  constructor(
    readonly key: MessageKey,
    parameters: Parameters = {},
    options?: ErrorOptions,
  ) {
    super(sentence(key, parameters), options);
  }
}

/** Fill a sentence's parameters in. */
export function sentence(key: MessageKey, parameters: Parameters = {}): string {
  return messages[key].replace(/\{(\w+)\}/g, (_, name) => String(parameters[name]));
}

/** A task breaks a rule. */
export class TaskError extends ShuffleDpError {
  override readonly name: string = "TaskError";
  override readonly status: string = "INVALID_ARGUMENT";
}

/** Bytes from outside are malformed: a message, a key, or a ciphertext. */
export class WireError extends ShuffleDpError {
  override readonly name: string = "WireError";
  override readonly status: string = "INVALID_ARGUMENT";
}

/** A person's value lies outside the task's domain; the message never repeats the value. */
export class ValueRangeError extends ShuffleDpError {
  override readonly name: string = "ValueRangeError";
  override readonly status: string = "INVALID_ARGUMENT";
}

/** The device's settings break a rule. */
export class SettingsError extends ShuffleDpError {
  override readonly name: string = "SettingsError";
  override readonly status: string = "FAILED_PRECONDITION";
}

/** A task's or a blind signature does not verify, or an inclusion proof is invalid. */
export class ProofError extends ShuffleDpError {
  override readonly name: string = "ProofError";
  override readonly status: string = "FAILED_PRECONDITION";
}

/** Too few pinned witnesses cosigned a checkpoint so far; safe to retry. */
export class WitnessQuorumError extends ProofError {
  override readonly name: string = "WitnessQuorumError";
  override readonly status: string = "UNAVAILABLE";
}

/** The log signed a head that is not proven to continue the last one. */
export class ForkError extends ProofError {
  override readonly name: string = "ForkError";
}

/** A task's deadline, claims, weights or mechanism break the device's policy. */
export class PolicyError extends ShuffleDpError {
  override readonly name: string = "PolicyError";
  override readonly status: string = "FAILED_PRECONDITION";
}

/** An answer would exceed a privacy budget. */
export class BudgetError extends ShuffleDpError {
  override readonly name: string = "BudgetError";
  override readonly status: string = "RESOURCE_EXHAUSTED";
}

/** The person has not answered a task with this digest. */
export class UnknownTaskError extends ShuffleDpError {
  override readonly name: string = "UnknownTaskError";
  override readonly status: string = "NOT_FOUND";
}

/** The device's own storage is missing or failing. */
export class StorageError extends ShuffleDpError {
  override readonly name: string = "StorageError";
  override readonly status: string = "UNAVAILABLE";
}

/** Another party did not answer in time, or its answer is invalid; safe to retry. */
export class PeerError extends ShuffleDpError {
  override readonly name: string = "PeerError";
  override readonly status: string = "UNAVAILABLE";
}

/** Another party is overloaded; retry later. */
export class PeerBusyError extends PeerError {
  override readonly name: string = "PeerBusyError";
}

/** Another party is temporarily unable to serve, for example because its disk is full. */
export class PeerUnableError extends PeerError {
  override readonly name: string = "PeerUnableError";
}

/** A proxy, or another program or version, refused the call; retrying seldom helps. */
export class ForeignReplyError extends PeerError {
  override readonly name: string = "ForeignReplyError";
}

/** Another party refused the call; the status of the refusal is passed on. */
export class PeerRefusalError extends ShuffleDpError {
  override readonly name: string = "PeerRefusalError";
  override readonly status: string;

  constructor(whom: string, status: string, reason: string) {
    super("peer_refused", { whom, status, reason });
    this.status = status;
  }
}
