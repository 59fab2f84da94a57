/** The constants of the page, which its publisher writes into constants.js. */
export interface Constants {
  /** Addresses of the services. */
  readonly shuffler: string;
  readonly issuer: string | null;
  /** Signing identities that every device of this page pins, in hexadecimal. */
  readonly analyzer_identity: string;
  readonly shuffler_identity: string;
  readonly relay_identity?: string | null;
  /** Names of the two shufflers' operators, if the publisher knows them. */
  readonly shuffler_name?: string | null;
  readonly relay_name?: string | null;
  readonly issuer_identity: string | null;
  /** Keys of the witnesses of the log, as in witness.pub, and how many must have cosigned. */
  readonly witnesses: readonly string[];
  readonly witness_quorum: number;
  /** Those of the witnesses that recompute every claim, and how many must have cosigned. */
  readonly checking_witnesses: readonly string[];
  readonly checking_quorum: number;
  /** Whether one operator runs all parties. */
  readonly trial: boolean;
  readonly allow_tasks_without_tokens: boolean;
  readonly local_epsilon_cap: number;
  readonly total_local_epsilon_cap: number;
  readonly coalition_epsilon_cap: number;
  readonly total_coalition_epsilon_cap: number;
  readonly total_central_epsilon_cap: number;
  readonly total_delta_cap: number;
  /** Largest average number of seconds between checks that an answer was counted. */
  readonly inclusion_check_seconds: number;
  readonly version: string;
}

export declare const constants: Constants;
