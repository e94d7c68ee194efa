/**
 * The adapters of the served model, and how much of each a request gets.
 * @module
 */
import type { ServedModel } from "./language_model.ts";
import { badRequest } from "./errors.ts";

/** How much of an adapter. */
export interface AdapterScale {
  readonly id: number;
  readonly scale: number;
}

/** What all requests share: which adapters there are, and how much of each one gets that does not say. */
export class Adapters {
  constructor(readonly list: ServedModel["adapters"], private scales: readonly number[]) {}

  /**
   * How much of each adapter: none of those that are not named.
   * @param asked Left out: what holds for all.
   * @throws ApiError 400 for an adapter that is not there
   */
  of(asked: readonly AdapterScale[] | undefined, field = "lora"): readonly number[] {
    if (asked === undefined) return this.scales;
    const scales = this.list.map(() => 0);
    asked.forEach(({ id, scale }, i) => {
      const place = `${field}[${i}].id`;
      if (!(id in scales)) throw badRequest(`${place}: there is no adapter ${id}`, place);
      scales[id] = scale;
    });
    return scales;
  }

  /** As lists show it. */
  listed(scales: readonly number[] = this.scales): AdapterScale[] {
    return scales.map((scale, id) => ({ id, scale }));
  }

  set(scales: readonly number[]): void {
    this.scales = scales;
  }
}
