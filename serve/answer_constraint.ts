/**
 * The interface through which a generation asks which tokens may come next.
 * @module
 */
export interface AnswerConstraint {
  /** Whole rows of logits are wanted, for `apply` to mask: a form is in force. */
  readonly active: boolean;
  /** The form is complete and nothing can follow. */
  readonly finished: boolean;
  /**
   * Forbids in a row of logits what may not come next.
   * @throws TextError `text.no_candidate` where the vocabulary cannot write what the form asks for.
   */
  apply(logits: Float32Array): void;
  /** Takes the chosen token. The tracker must have taken it already. */
  accept(token: number): void;
}
